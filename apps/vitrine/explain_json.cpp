// SPDX-License-Identifier: Apache-2.0
#include "explain_json.h"

#include "options.h"

namespace vitrine::app {
namespace {

Json json_of(const Engine& engine, const std::vector<TokenScore>& tokens) {
  Json out = Json::array();
  for (const TokenScore& t : tokens) {
    out.push_back({{"id", t.id},
                   {"token", engine.tokenizer() ? Json(token_text(engine, t.id)) : Json()},
                   {"probability", t.probability},
                   {"logit", t.logit}});
  }
  return out;
}

Json json_of(const TokenPlace& place) { return {{"rank", place.rank}, {"probability", place.probability}}; }
Json json_of(const StreamSize& size) { return {{"l2", size.l2}, {"rms", size.rms}}; }
Json json_of(const Contribution& added) { return {{"l2", added.l2}, {"cosine", added.cosine}}; }

Json json_of(const Engine& engine, const ReadOut& out) {
  return {{"top", json_of(engine, out.top)}, {"likeliest", json_of(out.likeliest)}, {"chosen", json_of(out.chosen)}};
}

Json json_of(const Engine& engine, const ExplainedLayer& layer) {
  Json groups = Json::array();
  for (const HeadGroup& group : layer.head_groups) {
    Json strongest = Json::array();
    for (const AttendedPosition& at : group.strongest) {
      strongest.push_back({{"position", at.position}, {"weight", at.weight}});
    }
    groups.push_back({{"strongest", strongest},
                      {"first_token_share", group.first_token_share},
                      {"entropy_bits", group.entropy_bits}});
  }
  return {{"after_attention", json_of(layer.after_attention)},
          {"after_block", json_of(layer.after_block)},
          {"attention", json_of(layer.attention)},
          {"feed_forward", json_of(layer.feed_forward)},
          {"head_groups", groups},
          {"read_out", json_of(engine, layer.read_out)}};
}

Json json_of(const Draw& draw, const Generation& g) {
  const SamplingParams& p = draw.sampling;
  Json bias = Json::array();
  for (const auto& [id, value] : p.logit_bias) bias.push_back({{"id", id}, {"value", value}});
  return {{"greedy", p.greedy},
          {"temperature", p.temperature},
          {"top_k", p.top_k},
          {"top_p", p.top_p},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty},
          {"presence_penalty", p.presence_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"logit_bias", bias},
          {"seed", g.seed},
          {"num_candidates", g.num_candidates},
          {"probability", draw.probability},
          {"from", draw.from},
          {"to", draw.to}};
}

}  // namespace

Json json_of(const std::string& model, const Engine& engine, const Explanation& e) {
  const bool has_text = engine.tokenizer() != nullptr;
  Json tokens = Json::array();
  for (const ExplainedToken& t : e.tokens) {
    tokens.push_back({{"id", t.id}, {"token", has_text ? Json(t.text) : Json()}, {"embedding_norm", t.embedding_norm}});
  }
  Json layers = Json::array();
  for (const ExplainedLayer& layer : e.layers) layers.push_back(json_of(engine, layer));
  const Generation& g = e.generation;
  const Json out = {{"model", model},
                    {"architecture", engine.info().architecture},
                    {"tokens", tokens},
                    {"embedding", json_of(e.embedding)},
                    {"embedding_read_out", json_of(engine, e.embedding_read_out)},
                    {"layers", layers},
                    {"decided_at_layer", e.decided_at_layer},
                    {"likeliest", e.likeliest},
                    {"chosen", e.chosen},
                    {"kv_cache_bytes", e.kv_cache_bytes},
                    {"top", json_of(engine, g.top)},
                    {"candidates", json_of(engine, g.candidates)},
                    {"draw", json_of(e.draw, g)},
                    {"output_ids", g.output_ids},
                    {"text", has_text ? Json(g.text) : Json()},
                    {"finish_reason", to_string(g.finish_reason)}};
  return out;
}

}  // namespace vitrine::app
