// The stack with cuDNN's attention on a device that is not there, with a cuDNN that only notes what it is asked for.
#include <gmock/gmock.h>

#include <map>

#include "core/expect_error.hpp"
#include "cuda/absent_device.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/cudnn_session.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/search_space.hpp"

namespace gnomon::cuda {
namespace {

// What a test asks of the library, and what it was asked for.
struct Noted {
  int fails_at = -1;  // finalising a descriptor of this kind
  std::int64_t workspace = 4096;
  int engines = 1;
  bool execution_fails = false;

  bool takes_kept = true;

  int descriptors = 0, handles = 0;  // alive
  int plans = 0, reloaded = 0;       // ever made, and from what another process kept
  void* stream = nullptr;
  struct Execution {
    void* stream;
    std::vector<const void*> pointers;
  };
  std::vector<Execution> executions;
};
Noted noted;

struct Descriptor {
  int kind;
  std::string json;
  std::vector<const void*> pointers;
};

Cudnn make_noting() {
  Cudnn api;
  api.version_text = "9.99.0";
  api.status_string = [](int) { return "CUDNN_STATUS_NOT_SUPPORTED"; };
  api.last_error = [](char* text, std::size_t) { std::strcpy(text, "in so many words"); };
  api.create = [](dnn::Handle* handle) {
    return *handle = reinterpret_cast<dnn::Handle>(static_cast<std::uintptr_t>(++noted.handles)), 0;
  };
  api.destroy = [](dnn::Handle) { return --noted.handles, 0; };
  api.set_stream = [](dnn::Handle, void* stream) { return noted.stream = stream, 0; };
  api.create_descriptor = [](int kind, dnn::RawDescriptor* made) {
    return *made = new Descriptor{kind, {}, {}}, ++noted.descriptors, 0;
  };
  api.destroy_descriptor = [](dnn::RawDescriptor descriptor) {
    return delete static_cast<Descriptor*>(descriptor), --noted.descriptors, 0;
  };
  api.finalize = [](dnn::RawDescriptor descriptor) {
    const auto& [kind, json, pointers] = *static_cast<const Descriptor*>(descriptor);
    if (!json.empty()) return json == "the plan" && noted.takes_kept ? ++noted.reloaded, 0 : 1003;
    noted.plans += kind == dnn::execution_plan_descriptor;
    return kind == noted.fails_at ? 3000 : 0;
  };
  api.set = [](dnn::RawDescriptor descriptor, int attribute, int, std::int64_t count, const void* elements) {
    if (attribute == dnn::plan_json)
      static_cast<Descriptor*>(descriptor)
          ->json.assign(static_cast<const char*>(elements), static_cast<std::size_t>(count));
    if (attribute == dnn::pack_pointers) {
      const auto* const all = static_cast<const void* const*>(elements);
      static_cast<Descriptor*>(descriptor)->pointers.assign(all, all + count);
    }
    return 0;
  };
  api.get = [](dnn::RawDescriptor, int attribute, int, std::int64_t wanted, std::int64_t* count, void* to) {
    if (attribute == dnn::plan_json) {
      *count = 8;
      if (wanted >= 8) std::memcpy(to, "the plan", 8);
    }
    if (attribute == dnn::heuristics_results) *count = noted.engines;
    if (attribute == dnn::plan_workspace_bytes) *static_cast<std::int64_t*>(to) = noted.workspace;
    return 0;
  };
  api.execute = [](dnn::Handle, dnn::RawDescriptor, dnn::RawDescriptor pack) {
    noted.executions.push_back({noted.stream, static_cast<Descriptor*>(pack)->pointers});
    return noted.execution_fails ? 5000 : 0;
  };
  return api;
}

class NoCompiler final : public Compiler {
 public:
  explicit NoCompiler(std::filesystem::path cache) : Compiler(std::move(cache)) {}
  std::shared_ptr<const CompiledKernel> get(const KernelSource& source, const Architecture&) override {
    const auto number = numbers_.emplace(source.to_string(), numbers_.size()).first->second;
    CompiledKernel kernel;
    kernel.image = std::to_string(number);
    kernel.symbol = "absent";
    return std::make_shared<const CompiledKernel>(std::move(kernel));
  }
  void ahead(std::vector<KernelSource>, const Architecture&) override {}

 private:
  std::map<std::string, std::size_t> numbers_;
};

class CudnnSteps : public testing::Test {
 protected:
  void SetUp() override {
    noted = {};
    static const Cudnn noting = make_noting();
    use_cudnn(&noting);
    const Problem& p = problem_;
    weights_ = std::make_shared<const Weights>(Weights::random(p.config, 1));
    try {
      backend_ = new_backend({});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();  // no run-time compiler
    }
    memory_ = DeviceBuffer(static_cast<std::size_t>(p.elements()) * sizeof(float));
  }
  void TearDown() override {
    memory_ = DeviceBuffer();
    backend_.reset();
    use_cudnn(nullptr);
    EXPECT_EQ(noted.descriptors, 0);
    EXPECT_EQ(noted.handles, 0);
  }

  std::unique_ptr<Backend> new_backend(const std::filesystem::path& cache) const {
    return make_cuda_backend(0, weights_, {}, std::make_shared<NoCompiler>(cache));
  }
  Candidate candidate(const std::string& changes) const {
    Choices c = estimate_stack(problem_, {}, device_properties(0));
    c.tile = kCudnnTile;
    c.graph = false;
    return to_candidate(c).with(Candidate::parse(changes).choices());
  }
  Call call() {
    Call call;
    const std::array<std::int64_t, 3> shape = {problem_.batch, problem_.seq, problem_.config.d_model};
    call.input = ConstTensorView::contiguous(memory_.data(), DType::f32, shape);
    call.output = TensorView::contiguous(memory_.data(), DType::f32, shape);
    call.stream = reinterpret_cast<void*>(std::uintptr_t{42});
    return call;
  }

  const AbsentDevice device_{Architecture::parse("sm_90a")};
  const Problem problem_ = parse_problem("b5 s33 d128 h4 l3 f256");
  std::shared_ptr<const Weights> weights_;
  std::unique_ptr<Backend> backend_;
  DeviceBuffer memory_;
};

TEST_F(CudnnSteps, EachLayerRunsItOnTheCallersStreamOverItsOwnQkv) {
  const auto plan = backend_->prepare(problem_, candidate("slices=all"));
  plan->run(call());
  ASSERT_EQ(noted.executions.size(), 3u);
  for (const auto& [stream, pointers] : noted.executions) {
    EXPECT_EQ(stream, call().stream);
    ASSERT_EQ(pointers.size(), 6u);  // Q, K, V, output, scale, what is hidden
    const auto* const q = static_cast<const char*>(pointers[0]);
    EXPECT_EQ(pointers[1], q + 128 * 2);
    EXPECT_EQ(pointers[2], q + 2 * 128 * 2);
    EXPECT_EQ(*static_cast<const float*>(pointers[4]), 1 / std::sqrt(32.f));
    EXPECT_EQ(*static_cast<const float*>(pointers[5]), -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(noted.executions[0].pointers, noted.executions[2].pointers);
}

TEST_F(CudnnSteps, SlicesShareAPlanAndTheRestHasItsOwn) {
  const auto plan = backend_->prepare(problem_, candidate("slices=2"));
  EXPECT_EQ(noted.plans, 2);  // two sequences, and one
  plan->run(call());
  EXPECT_EQ(noted.executions.size(), 9u);
}

TEST_F(CudnnSteps, CandidatesWithTheSameAttentionShareItsPlan) {
  for (const char* changes : {"algo_fc1=0", "algo_fc1=1", "gemm_gelu=off", "fused_qkv=off", "graph=on"})
    backend_->prepare(problem_, candidate(changes))->run(call());
  EXPECT_EQ(noted.plans, 1);
  backend_->prepare(problem_, candidate("precision=bf16"));
  EXPECT_EQ(noted.plans, 2);
}

TEST_F(CudnnSteps, AnotherProcessTakesThePlanFromDisk) {
  const std::filesystem::path folder = testing::TempDir() + "gnomon_cudnn_plans";
  std::filesystem::remove_all(folder);
  const auto prepare = [&] { new_backend(folder)->prepare(problem_, candidate("slices=all"))->run(call()); };
  prepare();
  EXPECT_EQ(noted.plans, 1);
  prepare();
  EXPECT_EQ(noted.plans, 1);
  EXPECT_EQ(noted.reloaded, 1);
  const auto files = KernelCache(folder).list();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].kernel.source, "cuDNN's attention f16 b5 s33 h4 of 32 causal");
  EXPECT_EQ(files[0].kernel.compiler, "cuDNN 9.99.0");
  noted.takes_kept = false;  // it is made anew
  prepare();
  EXPECT_EQ(noted.plans, 2);
  EXPECT_EQ(noted.executions.size(), 9u);
}

TEST_F(CudnnSteps, WhatItRefusesIsRefusedInItsWords) {
  const auto prepare = [&] { backend_->prepare(problem_, candidate("slices=all")); };
  noted.fails_at = dnn::operation_graph_descriptor;
  expect_error(ErrorKind::environment,
               "cuDNN 9.99.0 does not run attention of 5 sequences of 33 tokens, 4 heads of 32 in f16: "
               "cudnnBackendFinalize failed: CUDNN_STATUS_NOT_SUPPORTED: in so many words",
               prepare);
  noted.fails_at = dnn::execution_plan_descriptor;
  expect_error(ErrorKind::environment, "in so many words", prepare);
  noted.fails_at = -1;
  noted.engines = 0;
  expect_error(ErrorKind::environment, "no engine is suggested", prepare);
  noted.engines = 2;
  noted.workspace = std::int64_t{1} << 30;
  expect_error(ErrorKind::environment, "it wants 1073741824 bytes of workspace, 33554432 are given", prepare);
  noted.workspace = 0;
  noted.execution_fails = true;
  const auto plan = backend_->prepare(problem_, candidate("slices=all"));
  expect_error(ErrorKind::environment, "cudnnBackendExecute failed", [&] { plan->run(call()); });
}

}  // namespace
}  // namespace gnomon::cuda
