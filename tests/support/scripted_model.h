// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <functional>
#include <span>
#include <vector>

namespace vitrine::test {

/// What comes after a text.
using Script = std::function<TokenId(std::span<const TokenId> text)>;

struct ScriptedOptions {
  EngineOptions engine{};
  std::int64_t context = 8192;
  bool has_state = false;                               // also a recurrent state, which can't be rolled back
  std::function<void(std::int64_t rows)> on_forward{};  // before each pass; may throw
};

/// Ids of a scripted model, and what its eos is.
inline constexpr std::int64_t kScriptedVocab = 64;
inline constexpr TokenId kScriptedEos = 63;

/// An engine whose model says what the script says after the text that the cache has of a sequence. The text is read
/// back from the KV cache, so a stale or foreign block gives a wrong text. With a state, that one must have seen exactly
/// this text, each token once; else the pass throws.
Engine scripted_engine(Script script, ScriptedOptions options = {});

/// What a greedy request gives with nothing in the way: the prompt's `count` next tokens, up to eos.
std::vector<TokenId> continuation(const Script& script, std::vector<TokenId> text, std::int64_t count);

/// A greedy request.
Request greedy(std::vector<TokenId> prompt, std::int64_t max_tokens);

/// A script that nobody can guess: a hash of the text. Never eos.
TokenId unguessable(std::span<const TokenId> text);

}  // namespace vitrine::test
