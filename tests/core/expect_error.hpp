// What a refusal says: tests look for the values in it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"

namespace gnomon {

template <typename Action>
void expect_error(ErrorKind kind, const std::string& part, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(std::string(error.what()), testing::HasSubstr(part));
    return;
  }
  ADD_FAILURE() << "expected an error that says '" << part << "', nothing was thrown";
}

}  // namespace gnomon
