// SPDX-License-Identifier: Apache-2.0
#include "text/regex_splitter.h"

#include <vitrine/error.h>

#include <algorithm>
#include <cctype>
#include <new>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/unicode.h"

namespace vitrine {
namespace {

constexpr std::size_t kMaxPattern = 8192;         // bytes; the longest known one has 250
constexpr std::uint32_t kHeapLimit = 256 * 1024;  // KiB, of the interpreter

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, what + " in a regular expression");
}

/// Walks the pattern once and writes the other dialect.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        in_class();
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        repeat();
      } else if (c == '^' || c == '$') {  // Oniguruma: of a line, PCRE2: of the text
        refuse(std::string("the anchor \"") + c + '"');
      } else {
        out_ += c;
        ++pos_;
      }
    }
    return std::move(out_);
  }

 private:
  bool starts(std::string_view what) const { return in_.substr(pos_).starts_with(what); }

  void escape() {
    if (pos_ + 1 == in_.size()) throw Error(ErrorCode::kBadFile, "a regular expression ends with a backslash");
    const char c = in_[pos_ + 1];
    const auto take = [this](std::string_view replacement) {
      out_ += replacement;
      pos_ += 2;
    };
    constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
    switch (c) {
      case 's':
        return take("\\p{White_Space}");
      case 'S':
        return take("\\P{White_Space}");
      case 'd':
        return take("\\p{Nd}");
      case 'D':
        return take("\\P{Nd}");
      case 'w':
        return take(in_class_ ? std::string(kWordClass) : "[" + std::string(kWordClass) + "]");
      case 'W':
        if (in_class_) break;
        return take("[^" + std::string(kWordClass) + "]");
      case 'v':
        return take("\\x{0B}");
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return take(in_.substr(pos_, 2));
      case 'p':
      case 'P':
        return property();
      case 'u':
      case 'x':
        return code_point();
      default:
        if (static_cast<unsigned char>(c) < 0x80 && std::ispunct(static_cast<unsigned char>(c)) != 0) {
          return take(in_.substr(pos_, 2));
        }
    }
    refuse("the escape \"" + std::string(in_.substr(pos_, 2)) + '"');
  }

  /// \p{Lu}, \p{^L}, \p{Han}: general categories and scripts. PCRE2 would take a bare script name for
  /// Script_Extensions.
  void property() {
    const std::size_t close = in_.find('}', pos_);
    if (pos_ + 2 >= in_.size() || in_[pos_ + 2] != '{' || close == in_.npos) refuse("a property without braces");
    std::string name(in_.substr(pos_ + 3, close - pos_ - 3));
    out_ += in_.substr(pos_, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.erase(0, 1);
    }
    if (name.empty() ||
        !std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalpha(c) || c == '_'; })) {
      refuse("the property \"" + name + '"');
    }
    out_ += name.size() <= 2 ? name : "sc:" + name;
    out_ += '}';
    pos_ = close + 1;
  }

  /// \uHHHH, \xHH, \x{H…}
  void code_point() {
    std::size_t begin = pos_ + 2;
    std::size_t length = in_[pos_ + 1] == 'u' ? 4 : 2;
    std::size_t end = begin + length;
    if (in_[pos_ + 1] == 'x' && begin < in_.size() && in_[begin] == '{') {
      const std::size_t close = in_.find('}', begin++);
      length = close == in_.npos ? 0 : close - begin;
      end = close + 1;
    }
    const std::string_view digits = in_.substr(begin, length);
    if (digits.empty() || digits.size() != length ||
        !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isxdigit(c) != 0; })) {
      refuse("an escaped code point that is not hexadecimal");
    }
    out_ += "\\x{" + std::string(digits) + '}';
    pos_ = end;
  }

  void open_class() {
    in_class_ = true;
    out_ += in_[pos_++];
    if (pos_ < in_.size() && in_[pos_] == '^') out_ += in_[pos_++];
    if (pos_ < in_.size() && in_[pos_] == ']') refuse("an empty class");
  }

  void in_class() {
    if (in_[pos_] == '[') refuse("a class inside a class");
    if (starts("&&")) refuse("an intersection of classes");
    in_class_ = in_[pos_] != ']';
    out_ += in_[pos_++];
  }

  void group() {
    static constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?i)", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (const std::string_view opening : kKnown) {
      if (!starts(opening)) continue;
      out_ += opening;
      pos_ += opening.size();
      return;
    }
    if (starts("(?") || starts("(*")) refuse("the group \"" + std::string(in_.substr(pos_, 3)) + "…\"");
    out_ += in_[pos_++];
  }

  /// {n}, {n,}, {n,m}; what follows it must not turn it into something else.
  void repeat() {
    const std::size_t close = in_.find('}', pos_);
    const std::string_view inside = close == in_.npos ? "" : in_.substr(pos_ + 1, close - pos_ - 1);
    if (inside.empty() || inside[0] == ',' || inside.find_first_not_of("0123456789,") != inside.npos) {
      refuse("a brace that is no repeat count");
    }
    if (close + 1 < in_.size() && (in_[close + 1] == '+' || in_[close + 1] == '?')) {
      refuse("a repeat count followed by \"+\" or \"?\"");
    }
    out_ += in_.substr(pos_, close + 1 - pos_);
    pos_ = close + 1;
  }

  std::string_view in_;
  std::size_t pos_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct MatchData {
  explicit MatchData(const pcre2_code* code, std::size_t text_size)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)), context(pcre2_match_context_create(nullptr)) {
    if (data == nullptr || context == nullptr) {
      release();
      throw std::bad_alloc();
    }
    // Enough for any pattern that is linear in the text, and an end to those that are not.
    const std::size_t steps = 10'000'000 + std::min<std::size_t>(text_size, 20'000'000) * 100;
    pcre2_set_match_limit(context, static_cast<std::uint32_t>(steps));
    pcre2_set_heap_limit(context, kHeapLimit);
  }
  ~MatchData() { release(); }
  MatchData(const MatchData&) = delete;
  MatchData& operator=(const MatchData&) = delete;
  void release() noexcept {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
};

}  // namespace

struct RegexSplitter::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

std::string translate_regex(std::string_view pattern) { return Translator(pattern).run(); }

RegexSplitter::RegexSplitter(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    throw Error(ErrorCode::kUnsupported, "a regular expression longer than " + std::to_string(kMaxPattern) + " bytes");
  }
  const std::string translated = translate_regex(pattern);
  auto owned = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE where = 0;
  owned->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, nullptr);
  if (owned->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof message);
    throw Error(ErrorCode::kBadFile,
                std::string("not a regular expression: ") + reinterpret_cast<const char*>(message));
  }
  pcre2_jit_compile(owned->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
  code_ = std::move(owned);
}

void RegexSplitter::split(std::string_view text, std::vector<std::size_t>& ends) const {
  const MatchData match(code_->code, text.size());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);
  std::size_t done = 0;
  for (std::size_t from = 0; from < text.size();) {
    const auto attempt = [&](std::uint32_t options) {
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, match.data, match.context);
    };
    int result = attempt(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = attempt(PCRE2_NO_JIT);  // this one keeps its stack on the heap
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw Error(ErrorCode::kTooLarge,
                  "the tokenizer's regular expression takes too many steps or too much memory "
                  "on this text (PCRE2 error " +
                      std::to_string(result) + ")");
    }
    if (range[0] > done) ends.push_back(range[0]);
    if (range[1] > range[0]) {
      ends.push_back(range[1]);
      from = range[1];
    } else {  // an empty match cuts, and the search goes on one character further
      if (range[0] == text.size()) return;
      from = range[0] + unicode::decode(text.data() + range[0]).length;
    }
    done = range[1];
  }
  if (done < text.size()) ends.push_back(text.size());
}

}  // namespace vitrine
