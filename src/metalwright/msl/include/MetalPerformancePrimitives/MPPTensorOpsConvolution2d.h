// convolution2d ("Convolution" of the Metal Shading Language specification): two spatial dimensions, channels fastest.
#pragma once
#include <metalwright/tensor_ops/element_types.h>
#include <metalwright/tensor_ops/operands.h>

namespace mpp {
namespace tensor_ops {
enum class convolution2d_activation_layout { nhwc };
enum class convolution2d_weights_layout { hwio };

struct convolution2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  // Vectors cannot be members of what a template takes as an argument.
  struct size2 { int x, y; };
  struct size4 { int x, y, z, w; };

  // Sizes count channels, width, height, batch; kernels and strides width, height.
  constexpr convolution2d_descriptor(
      const metal::vec<int, 4> destination_dimensions, const metal::vec<int, 4> source_dimensions,
      const metal::vec<int, 2> kernel_dimensions,
      convolution2d_activation_layout activation_layout = convolution2d_activation_layout::nhwc,
      convolution2d_weights_layout weights_layout = convolution2d_weights_layout::hwio,
      const metal::vec<int, 2> strides = {1, 1}, const metal::vec<int, 2> dilations = {1, 1}, int groups = 1,
      bool relaxed_precision = false, mode convolution2d_mode = mode::multiply)
      : destination_dimensions{destination_dimensions[0], destination_dimensions[1], destination_dimensions[2],
                               destination_dimensions[3]},
        source_dimensions{source_dimensions[0], source_dimensions[1], source_dimensions[2], source_dimensions[3]},
        kernel_dimensions{kernel_dimensions[0], kernel_dimensions[1]},
        strides{strides[0], strides[1]}, dilations{dilations[0], dilations[1]},
        activation_layout(activation_layout), weights_layout(weights_layout), groups(groups),
        relaxed_precision(relaxed_precision), convolution2d_mode(convolution2d_mode) {}

  size4 destination_dimensions, source_dimensions;
  size2 kernel_dimensions, strides, dilations;
  convolution2d_activation_layout activation_layout;
  convolution2d_weights_layout weights_layout;
  int groups;
  bool relaxed_precision;
  mode convolution2d_mode;
};
}  // namespace tensor_ops
}  // namespace mpp

namespace __mw {
// The result as a matrix: a row for each pixel, a column for each channel.
template <class Matrix, int Width, int Height>
struct image_layout {
  using matrix = Matrix;
  static constexpr int rank = 4, capacity = Matrix::capacity;
  static constexpr int width = Width, height = Height;
  template <class I>
  static metal::array<I, 4> place(int element) {
    const origin at = Matrix::here();
    const int pixel = Matrix::row(at, element);
    return {I(Matrix::col(at, element)), I(pixel % Width), I(pixel / Width % Height), I(pixel / Width / Height)};
  }
  static bool valid(int element) { return matrix_layout<Matrix>::valid(element); }
  static bool stores(int element) { return valid(element); }
};
}  // namespace __mw

namespace mpp {
namespace tensor_ops {
template <convolution2d_descriptor Descriptor, class Scope, class... Arguments>
class convolution2d {
  static_assert(__mw::is_scope<Scope> && !__mw::is_one_thread<Scope>,
                "the scope of a convolution2d is execution_simdgroups<N> for all simdgroups of the threadgroup");
  static_assert(Descriptor.groups == 1, "convolution2d with groups is not supported: Metalwright does not run it yet");

  static constexpr int channels = Descriptor.destination_dimensions.x, width = Descriptor.destination_dimensions.y,
                       height = Descriptor.destination_dimensions.z, batch = Descriptor.destination_dimensions.w;
  static constexpr int kernel_width = Descriptor.kernel_dimensions.x, kernel_height = Descriptor.kernel_dimensions.y;
  static_assert(channels > 0 && width > 0 && height > 0 && batch > 0 && kernel_width > 0 && kernel_height > 0,
                "destination_dimensions and kernel_dimensions of a convolution2d_descriptor are sizes");
  using result = __mw::fragments<width * height * batch, channels, int(Scope::static_size)>;
  template <class Element, class Coordinate>
  using cooperative = metal::cooperative_tensor<Element, metal::extents<Coordinate, channels, width, height, batch>,
                                                __mw::image_layout<result, width, height>>;

 public:
  static constexpr convolution2d_descriptor descriptor = Descriptor;
  using scope = Scope;

  // declared, so that it is inlined as everything else is
  convolution2d() : x_offset(0), y_offset(0) {}

  template <class Activation, class Weights, class Element, class Coordinate = int>
  using cooperative_tensor_destination_t = cooperative<Element, Coordinate>;
  template <class Activation, class Weights, class Element, class Coordinate = int>
  cooperative<Element, Coordinate> get_destination_cooperative_tensor() const { return {}; }

  // Where in the activation the middle of the window lies for the destination's first pixel.
  void set_offsets(metal::vec<int, 2> middle) { x_offset = middle[0], y_offset = middle[1]; }

  template <class Activation, class Weights, class Destination>
  void run(Activation& activation, Weights& weights, Destination& destination) const {
    using namespace __mw;
    using activation_t = metal::remove_cv_t<Activation>;
    using weights_t = metal::remove_cv_t<Weights>;
    static_assert(is_tensor<activation_t> && is_tensor<weights_t>,
                  "the activation and the weights of a convolution2d are tensors");
    static_assert(is_tensor<Destination> || is_cooperative<Destination>,
                  "the destination of a convolution2d is a tensor or a cooperative_tensor");
    static_assert(!__mw::has_scales<activation_t> && !__mw::has_scales<weights_t>,
                  "convolution2d does not take tensors with scales");
    static_assert(activation_t::get_rank() == 4 && weights_t::get_rank() == 4 && Destination::get_rank() == 4,
                  "the operands of a convolution2d have four dimensions");
    static_assert(multiplies<typename activation_t::value_type, typename weights_t::value_type,
                             typename Destination::value_type>,
                  "convolution2d does not take these element types together");
    enter<Scope>();
    using sum_t = sum_of<operand_of<activation_t>, operand_of<weights_t>>;
    constexpr int R = result::block_rows, C = result::block_cols;
    const origin here = result::here();
    for (int block = 0; block < result::capacity; block += R * C) {
      int pixel[R], channel[C];
      for (int i = 0; i < R; i++) pixel[i] = result::row(here, block + i * C);
      for (int j = 0; j < C; j++) channel[j] = result::col(here, block + j);
      sum_t sums[R][C] = {};
      if constexpr (Descriptor.convolution2d_mode == convolution2d_descriptor::mode::multiply_accumulate)
        for (int i = 0; i < R; i++)
          for (int j = 0; j < C; j++)
            if (owns(destination, pixel[i], channel[j]))
              sums[i][j] = sum_t(element(destination, block + i * C + j, pixel[i], channel[j]));
      for (int y = 0; y < kernel_height; y++)
        for (int x = 0; x < kernel_width; x++) {
          const auto seen = under_window(activation, pixel, x, y);
          add_products(sums, seen, for_channels(weights, channel, x, y), seen.size);
        }
      for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++)
          if (owns(destination, pixel[i], channel[j]))
            element(destination, block + i * C + j, pixel[i], channel[j]) = typename Destination::value_type(sums[i][j]);
    }
  }

 private:
  int x_offset, y_offset;

  // The middle of a window of an even size is its second half's first place.
  static constexpr int middle(int size, int dilation) { return ((size - 1) * dilation + 1) / 2; }

  // The activation's channels at one place of the window, for some pixels of the result: zero outside the image.
  template <class Activation, int R>
  auto under_window(const Activation& activation, const int (&pixel)[R], int x, int y) const {
    __mw::lines_in_memory<__mw::pointer_of<Activation>, __mw::operand_of<Activation>, R> lines;
    lines.step = activation.get_stride(0);
    lines.size = activation.get_extent(0);
    if (Descriptor.source_dimensions.x > 0 && Descriptor.source_dimensions.x < lines.size)
      lines.size = Descriptor.source_dimensions.x;
    for (int i = 0; i < R; i++) {
      const int across = pixel[i] % width, down = pixel[i] / width % height, image = pixel[i] / width / height;
      const long column = x_offset + across * Descriptor.strides.x + x * Descriptor.dilations.x -
                          middle(kernel_width, Descriptor.dilations.x);
      const long row = y_offset + down * Descriptor.strides.y + y * Descriptor.dilations.y -
                       middle(kernel_height, Descriptor.dilations.y);
      lines.inside[i] = image < batch && column >= 0 && column < activation.get_extent(1) && row >= 0 &&
                        row < activation.get_extent(2) && image < activation.get_extent(3);
      const long offset = column * activation.get_stride(1) + row * activation.get_stride(2) +
                          image * long(activation.get_stride(3));
      lines.start[i] = activation.__data + (lines.inside[i] ? offset : 0);
    }
    return lines;
  }
  template <class Weights, int C>
  static auto for_channels(const Weights& weights, const int (&channel)[C], int x, int y) {
    __mw::lines_in_memory<__mw::pointer_of<Weights>, __mw::operand_of<Weights>, C> lines;
    lines.step = weights.get_stride(1);
    lines.size = weights.get_extent(1);
    for (int j = 0; j < C; j++) {
      lines.inside[j] = channel[j] < channels && channel[j] < weights.get_extent(0) && x < weights.get_extent(2) &&
                        y < weights.get_extent(3);
      const long offset = channel[j] * long(weights.get_stride(0)) + x * long(weights.get_stride(2)) +
                          y * long(weights.get_stride(3));
      lines.start[j] = weights.__data + (lines.inside[j] ? offset : 0);
    }
    return lines;
  }
  template <class Destination>
  static bool owns(const Destination& destination, int pixel, int channel) {
    if constexpr (__mw::is_cooperative<Destination>)
      return true;
    else
      return pixel < width * height * batch && channel < channels && channel < destination.get_extent(0) &&
             pixel % width < destination.get_extent(1) && pixel / width % height < destination.get_extent(2) &&
             pixel / width / height < destination.get_extent(3);
  }
  template <class Destination>
  static auto& element(Destination& destination, int index, int pixel, int channel) {
    if constexpr (__mw::is_cooperative<Destination>)
      return destination.__elements[index];
    else
      return destination[channel, pixel % width, pixel / width % height, pixel / width / height];
  }
};
}  // namespace tensor_ops
}  // namespace mpp
