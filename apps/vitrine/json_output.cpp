// SPDX-License-Identifier: Apache-2.0
#include "json_output.h"

#include "terminal.h"

namespace vitrine::app {

void write_json(const Json& value) { write_out(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

}  // namespace vitrine::app
