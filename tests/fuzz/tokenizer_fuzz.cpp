// SPDX-License-Identifier: Apache-2.0
// The input is a tokenizer.json, and after a NUL byte a text for it. Seeds: share/vitrine/demo/tokenizer.json and
// the small tokenizer of tests/support/bad_tokenizers.cpp.
#include <vitrine/error.h>
#include <vitrine/tokenizer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/unicode.h"
#include "text/tokenizer_json.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();  // what libFuzzer reports
}

void use(const vitrine::Tokenizer& tokenizer, std::string_view text) {
  for (const auto special : {vitrine::SpecialTokens::kParse, vitrine::SpecialTokens::kText}) {
    const auto ids = tokenizer.encode(text, special);
    const auto spans = tokenizer.encode_spans(text, special);
    require(std::equal(ids.begin(), ids.end(), spans.begin(), spans.end(),
                       [](vitrine::TokenId id, const vitrine::TokenSpan& span) { return id == span.id; }));
    for (const auto& span : spans) require(span.begin <= span.end && span.end <= text.size());
    const std::string decoded = tokenizer.decode(ids);
    require(vitrine::unicode::is_valid_utf8(decoded));
    vitrine::StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const auto id : ids) streamed += decoder.push(id);
    require(streamed + decoder.flush() == decoded);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view text = input.substr(std::min(end + 1, size));
  try {
    const auto tokenizer = vitrine::make_tokenizer(std::string(input.substr(0, end)), "fuzz");
    use(*tokenizer, text);
    use(*tokenizer, "I'LL  say: e\u0301\u0323 \xFF 12345\r\n\r\n \t<|im_end|><think> 你好🦙!?");
  } catch (const vitrine::Error& error) {
    require(error.code() != vitrine::ErrorCode::kInternal);
  }
  return 0;
}
