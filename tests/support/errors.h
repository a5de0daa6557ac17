// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <string>

namespace vitrine::test {

/// The message of the Error that `action` throws, which must have that code.
template <class Action>
std::string message_of(Action action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace vitrine::test
