// Metal Performance Primitives: operations on tensors.
#pragma once
#include <MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h>
