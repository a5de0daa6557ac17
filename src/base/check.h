// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/error.h>

#include <string>

namespace vitrine {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal, std::string("internal error: ") + condition + " does not hold (" + file + ":" +
                                        std::to_string(line) + ")");
}

}  // namespace vitrine

/// For our own bugs at the borders of operations, never for input from outside. Throws, so that a server lives on.
#define VITRINE_CHECK(condition)                                                    \
  do {                                                                              \
    if (!(condition)) ::vitrine::check_failed(#condition, __FILE_NAME__, __LINE__); \
  } while (false)
