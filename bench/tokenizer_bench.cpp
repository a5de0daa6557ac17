// SPDX-License-Identifier: Apache-2.0
// How fast texts become ids, and how long a tokenizer.json takes to load.
//   tokenizer_bench [--benchmark_… options] [TOKENIZER [TEXT_FILE …]]
// Without arguments: the demo model's tokenizer and generated texts. bench/tokenizer_peer.py measures Hugging Face
// tokenizers on the same files.
#include <benchmark/benchmark.h>
#include <vitrine/error.h>
#include <vitrine/tokenizer.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace {

using namespace vitrine;

struct Text {
  std::string name;
  std::string content;
};

/// A megabyte or so put together from `words`.
std::string generate(const std::vector<std::string>& words) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < 1'000'000) text += words[random() % words.size()];
  return text;
}

std::vector<Text> generated_texts() {
  return {
      {"prose",
       generate({"The",   " quick", " brown", " fox",   " jumps", " over", " the", " lazy", " dog",   ".",     " It's",
                 " well", "-known", ",",      " isn't", " it",    "?\n\n", " In",  " 1984", " about", " forty"})},
      {"code", generate({"for (int i = 0; i < n; ++i) {\n", "  sum += values[i];\n", "}\n", "if (x == nullptr)",
                         " return;\n", "    // comment\n", "const auto& kValue = map_.find(key)->second;\n", "\n\n"})},
      {"mixed",
       generate({"Сталіца Беларусі — Мінск. ", "今天是星期一，", "नमस्ते दुनिया ", "مرحبا بالعالم ", "안녕하세요 ",
                 "Où est la bibliothèque ? ", "👩‍🚀 ", "Ελληνικά, ", "ภาษาไทย ", "日本語の文章。\n"})},
  };
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kNotFound, path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::size_t ids = 0;
  for (auto _ : state) {
    const auto encoded = tokenizer.encode(text);
    benchmark::DoNotOptimize(encoded.data());
    ids = encoded.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
  state.counters["ids"] = static_cast<double>(ids);
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids).data());
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}

void load(benchmark::State& state, const std::filesystem::path& path) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(path).get());
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::filesystem::path path =
      argc > 1 ? argv[1] : std::filesystem::path(VITRINE_SOURCE_DIR) / "share" / "vitrine" / "demo";
  std::vector<Text> texts;
  for (int i = 2; i < argc; ++i) texts.push_back({std::filesystem::path(argv[i]).filename().string(), read(argv[i])});
  if (texts.empty()) texts = generated_texts();

  const auto tokenizer = Tokenizer::load(path);
  benchmark::RegisterBenchmark("load", load, path)->Unit(benchmark::kMillisecond);
  for (const auto& [name, content] : texts) {
    benchmark::RegisterBenchmark(("encode/" + name).c_str(), encode, std::cref(*tokenizer), std::cref(content))
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("decode/" + name).c_str(), decode, std::cref(*tokenizer), std::cref(content))
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
}
