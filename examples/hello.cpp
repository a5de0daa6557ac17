// SPDX-License-Identifier: Apache-2.0
#include <vitrine/engine.h>

#include <iostream>

int main(int argc, char** argv) {
  auto engine = vitrine::Engine::load(argc > 1 ? argv[1] : vitrine::demo_model_folder().string());
  std::cout << engine.generate("The capital of France is").text << '\n';
}
