// Metal Performance Primitives: the namespace that generated Core AI kernels open. Its tensor operations are not
// supported yet; the front-end refuses them by name.
#pragma once
#include <metal_tensor>

namespace mpp {
namespace tensor_ops {}
}  // namespace mpp
