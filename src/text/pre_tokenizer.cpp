// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

namespace vitrine {
namespace {

void run(const KnownSplit* split, std::string_view text, std::vector<std::size_t>& ends) {
  split_known(*split, text, ends);
}
void run(const RegexSplitter& splitter, std::string_view text, std::vector<std::size_t>& ends) {
  splitter.split(text, ends);
}

}  // namespace

void PreTokenizer::add_split(std::string_view pattern, Engine engine) {
  const KnownSplit* known = engine == Engine::kFastest ? find_known_split(pattern) : nullptr;
  if (known != nullptr) {
    steps_.emplace_back(known);
  } else {
    steps_.emplace_back(RegexSplitter(pattern));
  }
}

void PreTokenizer::split(std::string_view text, std::vector<std::size_t>& ends) const {
  ends.clear();
  if (text.empty()) return;
  const auto run_step = [](const Step& step, std::string_view piece, std::vector<std::size_t>& out) {
    std::visit([&](const auto& splitter) { run(splitter, piece, out); }, step);
  };
  if (steps_.empty()) {
    ends.push_back(text.size());
    return;
  }
  run_step(steps_[0], text, ends);
  std::vector<std::size_t> coarse;
  std::vector<std::size_t> fine;
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    coarse.swap(ends);
    ends.clear();
    std::size_t begin = 0;
    for (const std::size_t end : coarse) {
      fine.clear();
      run_step(steps_[i], text.substr(begin, end - begin), fine);
      for (const std::size_t cut : fine) ends.push_back(begin + cut);
      begin = end;
    }
  }
}

}  // namespace vitrine
