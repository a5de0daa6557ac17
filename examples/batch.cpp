// SPDX-License-Identifier: Apache-2.0
// Many prompts at once. They share each step of the model, what they have in common is computed once, and each gets the
// text it would have got alone.
#include <vitrine/engine.h>

#include <iostream>

int main(int argc, char** argv) {
  auto engine = vitrine::Engine::load(argc > 1 ? argv[1] : vitrine::demo_model_folder().string());
  engine.start();  // a thread of the engine's own does the steps

  std::vector<vitrine::Stream> streams;
  for (const char* country : {"France", "Italy", "Japan", "Spain"}) {
    vitrine::Request request;
    request.prompt_ids = engine.encode(std::string("The capital of ") + country + " is");
    request.sampling.greedy = true;
    request.max_tokens = 8;
    streams.push_back(engine.stream(std::move(request)));
  }
  for (vitrine::Stream& stream : streams) {
    while (const auto event = stream.next()) {
      std::cout << event->text << std::flush;
      if (event->finished) std::cout << "  (" << event->finished->cached_tokens << " tokens from the cache)\n";
    }
  }
}
