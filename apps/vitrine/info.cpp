// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "commands.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

/// What the model needs when its cache is full, and what there is.
struct Memory {
  std::int64_t kv, kept, needed, available;
  bool fits;
};

Memory memory_of(const EngineInfo& info) {
  const std::int64_t kv = info.kv_bytes_per_token * info.cache_tokens;
  const std::int64_t kept = info.kv_bytes_per_token * info.prefix_cache_tokens;
  const std::int64_t needed = info.weight_bytes + kv + info.workspace_bytes;
  // Weights already in memory count as available: they are mapped from the page cache.
  const std::int64_t available = available_memory();
  return {kv, kept, needed, available, needed <= available};
}

std::string weights_name(const EngineInfo& info) {
  return info.precision == Precision::kExact ? "as stored" : to_string(info.weights);
}
std::string kv_name(const EngineInfo& info) {
  return info.precision == Precision::kExact ? "float32" : to_string(info.kv);
}

void print_json(const InfoCommand& o, const EngineInfo& info) {
  Json parts = Json::object();
  for (const ModelPart& part : info.parts) parts[part.name] = {{"parameters", part.parameters}, {"bytes", part.bytes}};
  Json isas = Json::array();
  for (const IsaInfo& isa : info.isas) {
    isas.push_back({{"name", isa.name}, {"available", isa.available}, {"reason", isa.reason}});
  }
  const Memory memory = memory_of(info);
  write_json(Json::object({{"model", o.model.name()},
                           {"folder", info.model},
                           {"architecture", info.architecture},
                           {"parameters", info.parameters},
                           {"weight_bytes", info.weight_bytes},
                           {"parts", parts},
                           {"layers", info.num_layers},
                           {"hidden_size", info.hidden_size},
                           {"intermediate_size", info.intermediate_size},
                           {"query_heads", info.query_heads},
                           {"kv_heads", info.kv_heads},
                           {"head_dim", info.head_dim},
                           {"vocab_size", info.vocab_size},
                           {"max_position_embeddings", info.max_position_embeddings},
                           {"context", info.context},
                           {"eos_ids", info.eos_ids},
                           {"kv_bytes_per_token", info.kv_bytes_per_token},
                           {"kv_bytes", memory.kv},
                           {"cache_tokens", info.cache_tokens},
                           {"prefix_cache_tokens", info.prefix_cache_tokens},
                           {"prefix_cache_bytes", memory.kept},
                           {"max_sequences", info.max_sequences},
                           {"workspace_bytes", info.workspace_bytes},
                           {"needed_bytes", memory.needed},
                           {"available_bytes", memory.available},
                           {"fits", memory.fits},
                           {"precision", info.precision == Precision::kExact ? "exact" : "default"},
                           {"weights", weights_name(info)},
                           {"rounded_from", info.rounded_from},
                           {"kv", kv_name(info)},
                           {"weight_cache_file", info.weight_cache_file},
                           {"threads", info.threads},
                           {"isa", info.isa},
                           {"isas", isas}}));
}

std::string why_this_isa(const EngineInfo& info) {
  const char* forced = std::getenv("VITRINE_ISA");
  if (forced != nullptr && *forced != '\0') return "forced by VITRINE_ISA";
  std::string lacking;
  for (const IsaInfo& isa : info.isas) {
    if (!isa.available) lacking += (lacking.empty() ? "; " : ", ") + isa.name + " " + isa.reason;
  }
  return "the best table this CPU runs" + lacking;
}

void print_text(const InfoCommand& o, const EngineInfo& info) {
  const auto line = [](const std::string& name, const std::string& value) { write_out(fit(name, 16) + value + "\n"); };
  line("Model", o.model.name());
  line("Folder", info.model);
  line("Architecture", fmt::format("{}: {} layers, hidden {}, feed-forward {}", info.architecture, info.num_layers,
                                   info.hidden_size, info.intermediate_size));
  line("Attention", fmt::format("{} query heads on {} KV heads of {}", info.query_heads, info.kv_heads, info.head_dim));
  line("Vocabulary", fmt::format("{} rows", with_commas(info.vocab_size)));
  line("Context",
       fmt::format("{} tokens of at most {}", with_commas(info.context), with_commas(info.max_position_embeddings)));
  line("Parameters", fmt::format("{} ({})", short_count(info.parameters), with_commas(info.parameters)));
  const std::string rounded = info.rounded_from.empty() ? "" : ", rounded from " + info.rounded_from;
  line("Weights", fmt::format("{}, {}{}", short_bytes(info.weight_bytes), weights_name(info), rounded));
  for (const ModelPart& part : info.parts) {
    line("  " + part.name,
         fmt::format("{:>9}  {:4.1f} %", short_bytes(part.bytes),
                     100.0 * static_cast<double>(part.bytes) / static_cast<double>(info.weight_bytes)));
  }
  line("Packed in", info.weight_cache_file.empty() ? "memory" : info.weight_cache_file);
  const Memory memory = memory_of(info);
  line("KV cache", fmt::format("{} a token, {}; {} tokens, {}", short_bytes(info.kv_bytes_per_token), kv_name(info),
                               with_commas(info.cache_tokens), short_bytes(memory.kv)));
  line("", "one pool that all requests share; memory is taken as it is used");
  line("  kept", fmt::format("at most {} tokens, {}, for later requests that begin alike",
                             with_commas(info.prefix_cache_tokens), short_bytes(memory.kept)));
  line("Memory", fmt::format("{} needed when the cache is full, {} available: {}", short_bytes(memory.needed),
                             short_bytes(memory.available),
                             memory.fits ? "fits" : "does not fit; a smaller --kv-memory needs less"));
  line("Kernels", fmt::format("{}: {}", info.isa, why_this_isa(info)));
  line("Threads", fmt::format("{}", info.threads));
}

}  // namespace

int info(const InfoCommand& o) {
  const Engine engine = o.model.load(/*preload=*/false);
  o.json ? print_json(o, engine.info()) : print_text(o, engine.info());
  return kExitFine;
}

}  // namespace vitrine::app
