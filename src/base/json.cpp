// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <vitrine/error.h>

#include <cmath>
#include <utility>

#include "base/mapped_file.h"

namespace vitrine::json {
namespace {

constexpr std::size_t kMaxDepth = 128;

std::string describe(simdjson::dom::element element) {
  constexpr std::size_t kMaxShown = 60;
  if (element.is_object()) return "an object";
  if (element.is_array()) return "an array";
  std::string text = simdjson::minify(element);
  if (text.size() > kMaxShown) {
    std::size_t end = kMaxShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  return text;
}

/// simdjson 3.0 asks the CPU alone: where the system does not keep the wide registers (booted with noxsave, behind some
/// hypervisors), its first AVX instruction is illegal. The compiler's question is about both.
void avoid_illegal_instructions() {
#if defined(__x86_64__)
  static const bool done = [] {
    if (__builtin_cpu_supports("avx512f")) return true;
    for (const char* name : {"haswell", "westmere", "fallback"}) {
      const simdjson::implementation* choice = simdjson::get_available_implementations()[name];
      if (choice == nullptr || !choice->supported_by_runtime_system()) continue;
      if (std::string_view(name) == "haswell" && !__builtin_cpu_supports("avx2")) continue;
      simdjson::get_active_implementation() = choice;
      break;
    }
    return true;
  }();
  static_cast<void>(done);
#endif
}

}  // namespace

std::optional<Value> Value::find(std::string_view key) const {
  simdjson::dom::element element;
  if (as_object().at_key(key).get(element) != simdjson::SUCCESS || element.is_null()) return std::nullopt;
  return child(key, element);
}

Value Value::at(std::string_view key) const {
  auto value = find(key);
  if (!value) fail("the key \"" + std::string(key) + "\" is missing");
  return *value;
}

std::string_view Value::as_string() const {
  std::string_view text;
  if (element_.get(text) != simdjson::SUCCESS) fail_expected("a string");
  return text;
}

bool Value::as_bool() const {
  bool flag = false;
  if (element_.get(flag) != simdjson::SUCCESS) fail_expected("true or false");
  return flag;
}

double Value::as_number() const {
  double number = 0;
  if (element_.get(number) != simdjson::SUCCESS || !std::isfinite(number)) fail_expected("a number");
  return number;
}

std::int64_t Value::as_int(std::int64_t min, std::int64_t max) const {
  std::int64_t number = 0;
  if (element_.get(number) != simdjson::SUCCESS || number < min || number > max) {
    fail_expected("an integer from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return number;
}

simdjson::dom::object Value::as_object() const {
  simdjson::dom::object object;
  if (element_.get(object) != simdjson::SUCCESS) fail_expected("an object");
  return object;
}

simdjson::dom::array Value::as_array() const {
  simdjson::dom::array array;
  if (element_.get(array) != simdjson::SUCCESS) fail_expected("an array");
  return array;
}

Value Value::child(std::string_view key, simdjson::dom::element element) const {
  std::string path = path_;
  if (!path.empty()) path += '.';
  path += key;
  return {element, source_, std::move(path)};
}

Value Value::child(std::size_t index, simdjson::dom::element element) const {
  return {element, source_, path_ + '[' + std::to_string(index) + ']'};
}

void Value::fail(const std::string& what) const {
  throw Error(ErrorCode::kBadFile, *source_ + ": " + (path_.empty() ? "" : path_ + ": ") + what);
}

void Value::fail_expected(const std::string& what) const { fail("expected " + what + ", found " + describe(element_)); }

Document Document::parse(std::string text, std::string source) {
  Document document;
  document.source_ = std::make_unique<std::string>(std::move(source));
  avoid_illegal_instructions();
  document.parser_ = std::make_unique<simdjson::dom::parser>();
  auto error = document.parser_->allocate(text.size(), kMaxDepth);
  static_assert(kRoomBehindText >= simdjson::SIMDJSON_PADDING);
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  if (error == simdjson::SUCCESS) error = document.parser_->parse(text.data(), text.size(), false).get(document.root_);
  if (error != simdjson::SUCCESS) {
    throw Error(ErrorCode::kBadFile, *document.source_ + ": not valid JSON: " + simdjson::error_message(error));
  }
  return document;
}

}  // namespace vitrine::json
