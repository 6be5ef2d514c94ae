// FlashAttention on tensor operations: softmax(Q K^T * scale) V without the scores ever being in memory as a whole.
//
// One simdgroup takes 16 rows of the queries of one head, and goes over the keys 32 at a time. A running maximum and a
// running sum for each row make the softmax: what was summed under a smaller maximum is scaled down to the new one.
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;

struct AttentionSizes {
  int queries, keys;
  int heads, key_heads;  // several heads of queries may share one of keys and values
  int causal;
  float scale;
};

constant constexpr int ROWS = 16, KEYS = 32;

template <typename T, int D>
kernel void flash_attention(device T* Q [[buffer(0)]], device T* K [[buffer(1)]], device T* V [[buffer(2)]],
                            device T* O [[buffer(3)]], constant AttentionSizes& sizes [[buffer(4)]],
                            uint2 group [[threadgroup_position_in_grid]]) {
  using shape = dextents<int32_t, 2>;
  const int first_row = group.x * ROWS, head = group.y;
  const long key_head = head / (sizes.heads / sizes.key_heads);
  auto q = tensor(Q + long(head) * sizes.queries * D, shape(D, sizes.queries)).slice(0, first_row);
  auto out = tensor(O + long(head) * sizes.queries * D, shape(D, sizes.queries)).slice(0, first_row);
  auto keys = tensor(K + key_head * sizes.keys * D, shape(D, sizes.keys));
  auto values = tensor(V + key_head * sizes.keys * D, shape(D, sizes.keys));

  constexpr auto score_descriptor = matmul2d_descriptor(ROWS, KEYS, D, false, true);
  constexpr auto value_descriptor = matmul2d_descriptor(
      ROWS, D, KEYS, false, false, false, matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<score_descriptor, execution_simdgroup> score_op;
  matmul2d<value_descriptor, execution_simdgroup> value_op;
  using operand = decltype(q);

  auto sum = value_op.template get_destination_cooperative_tensor<operand, operand, float>();
  for (auto it = sum.begin(); it != sum.end(); ++it) *it = 0;
  auto scores = score_op.template get_destination_cooperative_tensor<operand, operand, float>();
  auto highest = score_op.template get_row_reduction_destination_cooperative_tensor<operand, operand, float>();
  auto block_highest = highest, total = highest, block_total = highest;
  for (ushort i = 0; i < highest.get_capacity(); ++i) highest[i] = -INFINITY, total[i] = 0;

  const int last = sizes.causal ? min(sizes.keys, first_row + ROWS + sizes.keys - sizes.queries) : sizes.keys;
  for (int first_key = 0; first_key < last; first_key += KEYS) {
    auto k = keys.slice(0, first_key);
    score_op.run(q, k, scores);
    for (ushort i = 0; i < scores.get_capacity(); ++i) {
      auto at = scores.get_multidimensional_index(i);
      const int key = first_key + at[0], row = first_row + at[1];
      const bool seen = key < sizes.keys && (!sizes.causal || key <= row + sizes.keys - sizes.queries);
      scores[i] = seen ? scores[i] * sizes.scale : -INFINITY;
    }
    reduce_rows(scores, block_highest, reduction_operation::max, float(-INFINITY));

    // the factor for what is summed so far takes the place of the old maximum
    for (ushort i = 0; i < highest.get_capacity(); ++i) {
      const float now = max(highest[i], block_highest[i]);
      block_highest[i] = now;
      highest[i] = highest[i] == -INFINITY ? 0.0f : exp(highest[i] - now);
    }
    for (auto it = scores.begin(); it != scores.end(); ++it) {
      const float now = *block_highest.map_iterator(it);
      *it = *it == -INFINITY ? 0.0f : exp(*it - now);
    }
    reduce_rows(scores, block_total);
    for (auto it = sum.begin(); it != sum.end(); ++it) *it *= *highest.map_iterator(it);
    for (ushort i = 0; i < total.get_capacity(); ++i) {
      total[i] = total[i] * highest[i] + block_total[i];
      highest[i] = block_highest[i];
    }

    auto weights = value_op.template get_left_input_cooperative_tensor<T, T, float>(scores);
    auto v = values.slice(0, first_key);
    value_op.run(weights, v, sum);
  }

  for (auto it = sum.begin(); it != sum.end(); ++it) *it /= *total.map_iterator(it);
  sum.store(out);
}

#define FLASH_ATTENTION(NAME, T, D)                                                                          \
  template [[host_name(NAME)]] kernel void flash_attention<T, D>(device T*, device T*, device T*, device T*, \
                                                                 constant AttentionSizes&, uint2);
FLASH_ATTENTION("flash_attention_half_64", half, 64)
FLASH_ATTENTION("flash_attention_bfloat_64", bfloat, 64)
FLASH_ATTENTION("flash_attention_float_40", float, 40)
