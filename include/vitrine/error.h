// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace vitrine {

/// What kind of thing went wrong; the message says what, where, what was expected and what was found.
enum class ErrorCode {
  kInvalidArgument,  ///< the caller asked for something that makes no sense (exit code 2, HTTP 400)
  kNotFound,         ///< a file, model or name does not exist
  kBadFile,          ///< a file breaks its format or contradicts another file
  kUnsupported,      ///< well-formed, but this program does not do it
  kTooLarge,         ///< beyond a limit: the prompt exceeds the context, a file exceeds a cap
  kIo,               ///< the operating system refused a read, a mapping, memory
  kNumeric,          ///< NaN or infinity where numbers were expected
  kInternal,         ///< a bug of ours
};

/// The one exception type of the library: thrown for what ends an operation.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace vitrine
