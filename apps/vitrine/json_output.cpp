// SPDX-License-Identifier: Apache-2.0
#include "json_output.h"

#include "terminal.h"

namespace vitrine::app {

std::string json_line(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void write_json(const Json& value) { write_out(json_line(value) + "\n"); }

Json speculation_json(const Speculation& speculation) {
  return {{"drafted", speculation.drafted}, {"accepted", speculation.accepted}, {"steps", speculation.steps}};
}

}  // namespace vitrine::app
