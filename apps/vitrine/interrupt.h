// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace vitrine::app {

/// While it lives, Ctrl-C and SIGTERM are noted instead of ending the program; a second one ends it at once.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  /// Whether one of them came.
  static bool interrupted() noexcept;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

}  // namespace vitrine::app
