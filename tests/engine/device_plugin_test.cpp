#include "engine/device_plugin.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/expect_error.hpp"
#include "engine/engine.hpp"

namespace gnomon {
namespace {

// A plugin that was loaded stays: these run while none was, each asking for one that cannot be had.
class DevicePluginTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv("GNOMON_CUDA_PLUGIN"); }
  static void name_plugin(const char* path) { setenv("GNOMON_CUDA_PLUGIN", path, 1); }
};

TEST_F(DevicePluginTest, WhatIsNoPluginIsRefusedInOneLine) {
  name_plugin("/nowhere/libgnomon-cuda.so");
  expect_error(ErrorKind::environment, "/nowhere/libgnomon-cuda.so", [] { cuda_plugin(); });
  name_plugin("libm.so.6");
  expect_error(ErrorKind::environment, "libm.so.6 is no backend of Gnomon", [] { cuda_plugin(); });
  expect_error(ErrorKind::environment, "device 'cuda:0'",
               [] { make_backend("cuda:0", std::make_shared<const Weights>(), {}); });
}

TEST_F(DevicePluginTest, DevicesAreNamed) {
  EXPECT_EQ(cuda_ordinal("cuda:0"), 0);
  EXPECT_EQ(cuda_ordinal("cuda:12"), 12);
  for (const char* name : {"", "cuda", "cuda:", "cuda:-1", "cuda:1x", "tpu:0"})
    expect_error(ErrorKind::caller, "expected 'cpu' or 'cuda:N'", [&] { cuda_ordinal(name); });
  EXPECT_EQ(make_device_memory("cpu"), nullptr);
}

// Errors are thrown by the plugin's code and caught by ours: their kind must survive the border.
TEST_F(DevicePluginTest, ErrorsCrossTheBorderWithTheirKind) {
  const DevicePlugin* plugin = nullptr;
  try {
    plugin = &cuda_plugin();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const auto weights = std::make_shared<const Weights>(Weights::random(parse_stack_config("d8 h1 l1 f8"), 1));
  expect_error(ErrorKind::environment, "", [&] { plugin->make_backend(100000, weights, {}); });
}

}  // namespace
}  // namespace gnomon
