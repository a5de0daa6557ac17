// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <new>
#include <string>

#include "command_line.h"
#include "commands.h"
#include "terminal.h"

namespace {

using namespace vitrine::app;

/// A mapped file that shrinks under us raises SIGBUS on the next touch; nothing sensible can be computed any more.
void on_bus_error(int) {
  constexpr char kMessage[] = "vitrine: a model file was truncated while it was in use\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(kExitFailed);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGBUS, on_bus_error);
  try {
    return run_command_line(argc, argv);
  } catch (const vitrine::Error& error) {
    write_note(std::string("vitrine: ") + error.what());
    return error.code() == vitrine::ErrorCode::kInvalidArgument ? kExitUsage : kExitFailed;
  } catch (const std::bad_alloc&) {
    write_note("vitrine: out of memory");
  } catch (const std::exception& error) {
    write_note(std::string("vitrine: ") + error.what());
  }
  return kExitFailed;
}
