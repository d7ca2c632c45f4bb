// The C++ wrapper: the same engine through RAII and exceptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "gnomon/gnomon.hpp"

namespace {

using ::testing::HasSubstr;

gnomon::Options quick() { return gnomon::Options().set("plan_dir", "").set("effort", "estimate"); }

std::vector<float> waves(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = std::sin(static_cast<float>(i));
  return x;
}

TEST(CppApi, WithoutAPlanningThereIsNothingToCancel) {
  gnomon::Engine engine(gnomon::Weights::random("d16 h2 l2 f48", 7), gnomon::Options().set("plan_dir", ""));
  EXPECT_FALSE(engine.cancel());
}

TEST(CppApi, InPlaceGivesTheAnswerOfOutOfPlace) {
  gnomon::Engine engine(gnomon::Weights::random("d16 h2 l2 f48 pre finalnorm", 3), quick());
  std::vector<float> x = waves(2 * 5 * 16), y(x.size());
  engine.forward(gnomon::tensor(std::as_const(x).data(), {2, 5, 16}), gnomon::tensor(y.data(), {2, 5, 16}));
  engine.forward(gnomon::tensor(x.data(), {2, 5, 16}), gnomon::tensor(x.data(), {2, 5, 16}));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5) << i;
}

TEST(CppApi, SavedWeightsGiveTheSameAnswer) {
  const auto path = std::filesystem::temp_directory_path() / "gnomon_cpp_api_test.safetensors";
  const gnomon::Weights weights = gnomon::Weights::random("d16 h2 l1 f48 bi", 3);
  weights.save(path.string());
  const gnomon::Weights loaded = gnomon::Weights::load(path.string());
  EXPECT_EQ(loaded.config(), weights.config());
  const std::vector<float> x = waves(4 * 16);
  std::vector<float> y(x.size()), z(x.size());
  gnomon::Engine(weights, quick()).forward(gnomon::tensor(x.data(), {1, 4, 16}), gnomon::tensor(y.data(), {1, 4, 16}));
  gnomon::Engine(loaded, quick()).forward(gnomon::tensor(x.data(), {1, 4, 16}), gnomon::tensor(z.data(), {1, 4, 16}));
  EXPECT_EQ(y, z);
  std::filesystem::remove(path);
}

TEST(CppApi, ErrorsAreExceptionsWithTheirKind) {
  try {
    gnomon::Weights::random("d16 h3", 1);
    FAIL() << "d_model 16 is not divisible by 3 heads";
  } catch (const gnomon::Error& error) {
    EXPECT_EQ(error.kind(), gnomon::ErrorKind::caller);
    EXPECT_THAT(error.what(), HasSubstr("16"));
  }
}

TEST(CppApi, MissingTensorsAreNamed) {
  const std::vector<float> weight(16 * 16);
  const gnomon::NamedTensor only = {"layers.0.attn.q_proj.weight", weight.data(), gnomon::DType::f32, {16, 16}};
  try {
    gnomon::Weights::from_tensors("d16 h2 l1 f48", std::span(&only, 1));
    FAIL() << "all other tensors are missing";
  } catch (const gnomon::Error& error) {
    EXPECT_EQ(error.kind(), gnomon::ErrorKind::caller);
    EXPECT_THAT(error.what(), HasSubstr("layers.0."));
  }
}

TEST(CppApi, StridedInputsAndMasks) {
  gnomon::Engine engine(gnomon::Weights::random("d16 h2 l1 f48 bi", 3), quick());
  const std::vector<float> x = waves(3 * 2 * 16);  // [S, B, d] in memory
  std::vector<float> contiguous(x.size()), y(x.size()), z(x.size());
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t s = 0; s < 3; ++s) std::copy_n(&x[(s * 2 + b) * 16], 16, &contiguous[(b * 3 + s) * 16]);
  }
  const std::vector<std::uint8_t> valid = {1, 1, 0, 1, 0, 1};
  const gnomon::MaskRef mask(valid.data(), {2, 3});
  const gnomon::ConstTensorRef transposed(x.data(), gnomon::DType::f32, {2, 3, 16}, {16, 32, 1});
  engine.forward(transposed, gnomon::tensor(y.data(), {2, 3, 16}), mask);
  engine.forward(gnomon::tensor(std::as_const(contiguous).data(), {2, 3, 16}), gnomon::tensor(z.data(), {2, 3, 16}),
                 mask);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], z[i], 1e-5) << i;
}

}  // namespace
