// Closes begin.h.
#pragma clang attribute pop
#pragma float_control(pop)
