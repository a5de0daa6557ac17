// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine::json {

/// One value of a parsed document together with the path to it, so that every complaint names file and field.
/// Valid as long as its Document. For loops over many members take raw() and keep the path out of it.
class Value {
 public:
  Value(simdjson::dom::element element, const std::string* source, std::string path)
      : element_(element), source_(source), path_(std::move(path)) {}

  bool is_null() const noexcept { return element_.is_null(); }
  bool is_object() const noexcept { return element_.is_object(); }
  bool is_array() const noexcept { return element_.is_array(); }
  bool is_string() const noexcept { return element_.is_string(); }
  bool is_bool() const noexcept { return element_.is_bool(); }
  bool is_number() const noexcept { return element_.is_number(); }

  /// The member `key` of an object; nothing when it is absent or null. Throws if this is not an object.
  std::optional<Value> find(std::string_view key) const;
  /// The member `key`; throws Error(kBadFile) when it is absent or null.
  Value at(std::string_view key) const;

  // Each throws Error(kBadFile) "FILE: PATH: expected …, found …" when the type or range is wrong.
  std::string_view as_string() const;
  bool as_bool() const;
  double as_number() const;                                       // finite
  std::int64_t as_int(std::int64_t min, std::int64_t max) const;  // 1.0 is not an integer
  simdjson::dom::object as_object() const;
  simdjson::dom::array as_array() const;

  simdjson::dom::element raw() const noexcept { return element_; }
  const std::string& path() const noexcept { return path_; }
  Value child(std::string_view key, simdjson::dom::element element) const;
  Value child(std::size_t index, simdjson::dom::element element) const;

  /// Throws Error(kBadFile) with file and path in front.
  [[noreturn]] void fail(const std::string& what) const;
  /// fail("expected WHAT, found <this value, shortened>").
  [[noreturn]] void fail_expected(const std::string& what) const;

 private:
  simdjson::dom::element element_;
  const std::string* source_;
  std::string path_;  // "a.b[3]"; empty for the root
};

/// A whole JSON text, parsed and validated (UTF-8 included). Bounded depth.
class Document {
 public:
  /// `source` is the file's name for messages. A text from read_text_file() is parsed where it is, others may be copied
  /// once. Throws Error(kBadFile).
  static Document parse(std::string text, std::string source);
  Value root() const { return {root_, source_.get(), ""}; }

 private:
  Document() = default;
  std::unique_ptr<simdjson::dom::parser> parser_;
  std::unique_ptr<std::string> source_;
  simdjson::dom::element root_;
};

}  // namespace vitrine::json
