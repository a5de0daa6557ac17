// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitrine::app {

/// Reads the command line and runs the command it names. Returns the exit code; errors of the command are thrown.
int run_command_line(int argc, char** argv);

}  // namespace vitrine::app
