// SPDX-License-Identifier: Apache-2.0
#include "text/known_splits.h"

#include "base/unicode.h"

namespace vitrine {
namespace {

// Qwen2 to Qwen3; Qwen3.5; Llama 3.
#define VITRINE_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|)"
#define VITRINE_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr std::string_view kQwen2Pattern =
    VITRINE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" VITRINE_SPACES;
constexpr std::string_view kQwen35Pattern =
    VITRINE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" VITRINE_SPACES;
constexpr std::string_view kLlama3Pattern =
    VITRINE_CONTRACTIONS R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" VITRINE_SPACES;
#undef VITRINE_CONTRACTIONS
#undef VITRINE_SPACES

constexpr unsigned kClasses = unicode::kLetter | unicode::kMark | unicode::kNumber | unicode::kSpace;

/// One character: its class bits and length; length 0 at the end of the text.
struct Unit {
  unsigned flags;
  unsigned length;
};

class Scanner {
 public:
  Scanner(const KnownSplit& split, std::string_view text)
      : text_(text),
        letters_(split.marks_are_letters ? unicode::kLetter | unicode::kMark : unicode::kLetter),
        no_symbol_(letters_ | unicode::kNumber | unicode::kSpace),
        max_digits_(split.max_digits) {}

  /// The end of the piece that begins at `pos`, in the order of the pattern's alternatives.
  std::size_t next(std::size_t pos) const {
    const Unit first = at(pos);
    const std::size_t after = pos + first.length;
    if ((first.flags & letters_) != 0) return skip(after, letters_);
    if (text_[pos] == '\'') {
      if (const std::size_t end = contraction(after, true); end != 0) return end;
    }
    if ((first.flags & unicode::kNumber) != 0) return skip_digits(after);
    // Anything but a newline may lead a word.
    if (!is_newline(pos) && (at(after).flags & letters_) != 0) return skip(after, letters_);
    const std::size_t symbols = text_[pos] == ' ' ? after : pos;
    if (is_symbol(at(symbols))) {
      std::size_t end = skip_symbols(symbols);
      while (is_newline(end)) ++end;
      return end;
    }
    return white_space(pos, true);
  }

  std::size_t next_gpt2(std::size_t pos) const {
    if (text_[pos] == '\'') {
      if (const std::size_t end = contraction(pos + 1, false); end != 0) return end;
    }
    const std::size_t body = text_[pos] == ' ' ? pos + 1 : pos;
    const Unit first = at(body);
    if ((first.flags & unicode::kLetter) != 0) return skip(body, unicode::kLetter);
    if ((first.flags & unicode::kNumber) != 0) return skip(body, unicode::kNumber);
    if (is_symbol(first)) return skip_symbols(body);
    return white_space(pos, false);
  }

 private:
  Unit at(std::size_t pos) const {
    if (pos >= text_.size()) return {0, 0};
    const auto lead = static_cast<unsigned char>(text_[pos]);
    if (lead < 0x80) return {table_.ascii(lead) & kClasses, 1};
    const unicode::CodePoint point = unicode::decode(text_.data() + pos);
    return {table_.flags(point.value) & kClasses, point.length};
  }

  bool is_newline(std::size_t pos) const { return pos < text_.size() && (text_[pos] == '\n' || text_[pos] == '\r'); }
  bool is_symbol(Unit unit) const { return unit.length != 0 && (unit.flags & no_symbol_) == 0; }

  std::size_t skip(std::size_t pos, unsigned flags) const {
    for (Unit unit = at(pos); (unit.flags & flags) != 0; unit = at(pos)) pos += unit.length;
    return pos;
  }
  std::size_t skip_symbols(std::size_t pos) const {
    for (Unit unit = at(pos); is_symbol(unit); unit = at(pos)) pos += unit.length;
    return pos;
  }
  /// `pos` is after the first digit.
  std::size_t skip_digits(std::size_t pos) const {
    for (int count = 1; count != max_digits_; ++count) {
      const Unit unit = at(pos);
      if ((unit.flags & unicode::kNumber) == 0) break;
      pos += unit.length;
    }
    return pos;
  }

  /// The end of 's, 't, 're, 've, 'm, 'll or 'd whose apostrophe ends at `pos`; 0 if there is none.
  std::size_t contraction(std::size_t pos, bool ignore_case) const {
    const auto letter = [&](std::size_t i) {
      if (i >= text_.size()) return '\0';
      const char c = text_[i];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = letter(pos);
    const char second = letter(pos + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return pos + 1;
    if ((first == 'r' || first == 'v') && second == 'e') return pos + 2;
    if (first == 'l' && second == 'l') return pos + 2;
    if (ignore_case && text_.substr(pos).starts_with("\u017F")) return pos + 2;  // ſ folds to s
    return 0;
  }

  /// \s*[\r\n]+ (if asked for), \s+(?!\S), \s+: up to the last newline of the run, else all but the last character,
  /// which the next word takes, else all.
  std::size_t white_space(std::size_t pos, bool newlines) const {
    std::size_t end = pos;
    std::size_t last = pos;
    std::size_t after_newline = 0;
    for (Unit unit = at(end); (unit.flags & unicode::kSpace) != 0; unit = at(end)) {
      last = end;
      end += unit.length;
      if (newlines && is_newline(last)) after_newline = end;
    }
    if (after_newline != 0) return after_newline;
    return end == text_.size() || last == pos ? end : last;
  }

  std::string_view text_;
  const unicode::CharTable& table_ = unicode::CharTable::get();
  unsigned letters_;
  unsigned no_symbol_;
  int max_digits_;
};

constexpr KnownSplit kKnownSplits[] = {
    {kQwen2Pattern, false, false, 1},
    {kQwen35Pattern, false, true, 1},
    {kLlama3Pattern, false, false, 3},
    {kGpt2Pattern, true, false, 0},
};

}  // namespace

const KnownSplit* find_known_split(std::string_view pattern) noexcept {
  for (const KnownSplit& split : kKnownSplits) {
    if (split.pattern == pattern) return &split;
  }
  return nullptr;
}

void split_known(const KnownSplit& split, std::string_view text, std::vector<std::size_t>& ends) {
  const Scanner scanner(split, text);
  for (std::size_t pos = 0; pos < text.size();) {
    pos = split.gpt2 ? scanner.next_gpt2(pos) : scanner.next(pos);
    ends.push_back(pos);
  }
}

}  // namespace vitrine
