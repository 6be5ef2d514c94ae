// The runtime as one translation unit: LLVM inlines it into the kernel, and the kernel into it.
#include "fiber.c"
#include "scheduler.c"
#include "intrinsics.c"
#include "observe.c"
#include "checks.c"
#include "support.c"
