// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <unistd.h>

#include <atomic>

#include "commands.h"

namespace vitrine::app {
namespace {

std::atomic<bool> asked_to_end{false};

void on_interrupt(int) {
  if (asked_to_end.exchange(true)) ::_exit(kExitInterrupted);  // asked twice: at once
}

}  // namespace

InterruptScope::InterruptScope() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // a write that waits for its reader goes on
  ::sigaction(SIGINT, &action, &old_int_);
  ::sigaction(SIGTERM, &action, &old_term_);
}

InterruptScope::~InterruptScope() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
}

bool InterruptScope::interrupted() noexcept { return asked_to_end; }

}  // namespace vitrine::app
