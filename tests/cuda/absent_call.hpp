// A call on a device that is not there.
#pragma once

#include "core/problem.hpp"
#include "core/tensor.hpp"
#include "cuda/device_buffer.hpp"

namespace gnomon::test {

// Tensors of a problem in the absent device's memory.
struct AbsentCall {
  explicit AbsentCall(const Problem& problem)
      : input(static_cast<std::size_t>(problem.elements()) * size_of(problem.dtype)),
        output(input.bytes()),
        mask(static_cast<std::size_t>(problem.tokens())) {
    const std::array<std::int64_t, 3> shape = {problem.batch, problem.seq, problem.config.d_model};
    call.input = ConstTensorView::contiguous(input.data(), problem.dtype, shape);
    call.output = TensorView::contiguous(problem.inplace ? input.data() : output.data(), problem.dtype, shape);
    if (problem.mask) call.mask = MaskView{mask.as<std::uint8_t>(), {problem.batch, problem.seq}, {problem.seq, 1}};
  }
  cuda::DeviceBuffer input, output, mask;
  Call call;
};

}  // namespace gnomon::test
