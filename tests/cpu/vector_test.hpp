// Tests of our vector code. GNOMON_ISA may name a set that this machine lacks; such a run is skipped, and says why.
#pragma once

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "cpu/vec_kernels.hpp"

namespace gnomon::test {

class VectorTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cpu::vec_kernels();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      GTEST_SKIP() << error.what();
    }
  }
};

}  // namespace gnomon::test
