// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <vitrine/explain.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "commands.h"
#include "explain_json.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

// ---- Small pieces of text ----

constexpr int kColumns = 100;
constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};  // of a line, from the bottom

/// A share from 0 to 1 in a single column: eight heights.
const char* small_bar(double share) { return kHeights[std::clamp(static_cast<int>(share * 8), 0, 7)]; }

std::string percent(double share) {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return fmt::format("{:.1f} %", 100 * share);
}

std::string probability(double value) {
  return value > 0 && value < 0.00005 ? fmt::format("{:.1e}", value) : fmt::format("{:.4f}", value);
}

/// A norm in at most 8 columns.
std::string norm(double value) {
  if (value != 0 && (value < 0.01 || value >= 1e7)) return fmt::format("{:.1e}", value);
  return value < 1000 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

std::string cosine(double value) {
  return fmt::format("{:+.2f}", std::abs(value) < 0.005 ? 0.0 : value);  // never "-0.00"
}

std::string plural(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", with_commas(count), what, count == 1 ? "" : "s");
}

/// Stands for a space at which no line may break, until the line is written. No text has it: visible() escapes it.
constexpr char kSpaceInToken = '\x1F';

/// Collects the page, and keeps every line within kColumns.
class Page {
 public:
  void heading(const std::string& text) {
    const std::string line = "── " + cut(text, kColumns - 8) + " ";
    add(line + repeat("─", kColumns - display_width(line)), "\033[1m");
  }

  /// Text broken at spaces, but not at those of tokens.
  void text(const std::string& text) {
    std::string line = " ";
    std::string word;
    for (const char c : text + " ") {
      if (c != ' ') {
        word += c;
        continue;
      }
      if (display_width(line) + 1 + display_width(word) > kColumns) {
        add(line);
        line = " ";
      }
      line += " " + word;
      word.clear();
    }
    add(line + (word.empty() ? "" : " " + word));
  }

  void row(const std::string& cells) { add("  " + cells); }
  void marked_row(const std::string& cells) { add("  " + cells, "\033[32m"); }
  void column_names(const std::string& cells) { add("  " + cells, "\033[2m"); }
  void gap() { out_ += "\n"; }
  const std::string& str() const { return out_; }

 private:
  void add(const std::string& line, const char* style = nullptr) {
    std::string cells = cut(line, kColumns);
    std::replace(cells.begin(), cells.end(), kSpaceInToken, ' ');
    cells.erase(cells.find_last_not_of(' ') + 1);
    out_ += style != nullptr && colours_ ? style + cells + "\033[0m\n" : cells + "\n";
  }

  bool colours_ = colours_on_stdout();
  std::string out_;
};

// ---- The stations ----

/// What the stations tell about.
struct Story {
  const Engine& engine;
  const EngineInfo& info;
  const Explanation& e;

  /// The token in quotes, or its id, in at most that many columns.
  std::string name(TokenId id, int columns = 24) const {
    if (!has_text(id)) return fmt::format("id {}", id);
    std::string token = cut(shown_token(*engine.tokenizer(), id), columns - 2);
    std::replace(token.begin(), token.end(), ' ', kSpaceInToken);
    return "\"" + token + "\"";
  }
  bool has_text(TokenId id) const { return !token_text(engine, id).empty(); }
  std::int64_t last_position() const { return static_cast<std::int64_t>(e.tokens.size()) - 1; }
  std::string position_name(std::int64_t position, int columns) const {
    return name(e.tokens[static_cast<std::size_t>(position)].id, columns);
  }
  std::int64_t group_size() const { return info.query_heads / info.kv_heads; }
  const ExplainedLayer& decided() const { return e.layers[static_cast<std::size_t>(e.decided_at_layer)]; }
};

void tokenise(Page& page, const Story& s) {
  constexpr std::size_t kFirst = 4;  // of a long prompt
  constexpr std::size_t kLast = 16;
  page.heading("1 Tokenise");
  page.text(s.engine.tokenizer() ? "The text is cut into pieces of a fixed vocabulary; of each piece the "
                                   "model gets only its number, the id."
                                 : "The prompt came as ids, the numbers of pieces of text; there is no "
                                   "tokenizer here that knows their text.");
  page.column_names(" position        id  token");
  const std::size_t count = s.e.tokens.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (count > kFirst + kLast && i == kFirst) {
      page.row(fmt::format("        …            ({} not shown)", plural(std::ssize(s.e.tokens) - 20, "token")));
      i = count - kLast;
    }
    const std::string text = s.e.tokens[i].text.empty() ? "" : s.name(s.e.tokens[i].id, 60);
    page.row(fmt::format("{:9}  {:8}  {}", i, s.e.tokens[i].id, text));
  }
}

void embed(Page& page, const Story& s) {
  page.heading("2 Embed");
  page.text(
      fmt::format("Each id selects one row of the embedding table, {} numbers: the token's residual stream begins "
                  "with them, and every block adds to it.",
                  with_commas(s.info.hidden_size)));
  const auto by_norm = [](const ExplainedToken& a, const ExplainedToken& b) {
    return a.embedding_norm < b.embedding_norm;
  };
  const auto [small, large] = std::minmax_element(s.e.tokens.begin(), s.e.tokens.end(), by_norm);
  page.text(fmt::format("Norm (length) of the last token's row, {}: {}. Of the prompt's rows: {} ({}) to {} ({}).",
                        s.name(s.e.tokens.back().id), norm(s.e.embedding.l2), norm(small->embedding_norm),
                        s.name(small->id), norm(large->embedding_norm), s.name(large->id)));
}

void normalise(Page& page, const Story& s) {
  page.heading("3 Normalise (RMSNorm)");
  page.text(
      "Attention, feed forward and head read a copy of the stream, divided by its root mean square (RMS) and "
      "multiplied by learned weights; the stream itself stays as it is.");
  const std::size_t last = s.e.layers.size() - 1;
  const double entering_last = last > 0 ? s.e.layers[last - 1].after_block.rms : s.e.embedding.rms;
  page.text(
      fmt::format("RMS of the last token's stream: {} entering block 0, {} entering block {}, {} entering the head.",
                  norm(s.e.embedding.rms), norm(entering_last), last, norm(s.e.layers[last].after_block.rms)));
}

void position(Page& page, const Story& s) {
  page.heading("4 Position (QK-norm and RoPE)");
  page.text(
      "Matrices make queries, keys and values of the normalised stream, one for each head; queries and keys "
      "are "
      "normalised once more and turned, two numbers at a time, by angles that grow with the token's "
      "position, so "
      "that the product of two depends on how far apart they are.");
  page.text(fmt::format("The last token is at position {}; the {} numbers of each head turn as {}.", s.last_position(),
                        s.info.head_dim, plural(s.info.head_dim / 2, "pair")));
}

void attend(Page& page, const Story& s) {
  page.heading("5 Attend (grouped-query attention and the KV cache)");
  page.text(
      "Each query is multiplied with the keys of the positions up to its own, a softmax makes weights of the "
      "products, and the values, summed with these weights, go through a matrix and are added to the "
      "stream.");
  page.text(fmt::format("{} share {}, {} each, so the cache keeps keys and values of {} heads only.",
                        plural(s.info.query_heads, "query head"), plural(s.info.kv_heads, "KV head"), s.group_size(),
                        s.info.kv_heads));
  page.text(fmt::format("KV cache now: {} × {} = {} in {}; later tokens read them instead of computing them again.",
                        plural(std::ssize(s.e.tokens), "token"), plural(s.info.kv_bytes_per_token, "byte"),
                        short_bytes(s.e.kv_cache_bytes), plural(s.info.num_layers, "block")));
}

void feed_forward(Page& page, const Story& s) {
  page.heading("6 Feed forward (SwiGLU)");
  page.text(
      fmt::format("Two matrices make {0} numbers each of the normalised {1}; SiLU of the first times the second is "
                  "turned back into {1} by a third matrix and added to the stream.",
                  with_commas(s.info.intermediate_size), with_commas(s.info.hidden_size)));
  page.text(fmt::format("{0} → {1} → {0} in each of {2}.", s.info.hidden_size, s.info.intermediate_size,
                        plural(s.info.num_layers, "block")));
}

/// Where each KV head group looks, in at most `columns`: as many positions and groups as there is room for.
std::string looks_at(const std::vector<HeadGroup>& groups, int digits, int columns) {
  const auto num_groups = static_cast<int>(groups.size());
  const auto cell = digits + 1;
  int positions = 0;
  for (const HeadGroup& group : groups) positions = std::max(positions, static_cast<int>(group.strongest.size()));
  const auto width = [&](int gap) { return num_groups * (positions * (cell + 1) - 1) + (num_groups - 1) * gap; };
  while (positions > 1 && width(3) > columns) --positions;
  const std::string between = positions > 1 ? " │ " : width(1) <= columns ? " " : "";
  std::string out;
  for (const HeadGroup& group : groups) {
    std::string text = out.empty() ? "" : between;
    for (int i = 0; i < positions; ++i) {
      if (i > 0) text += " ";
      const bool there = i < static_cast<int>(group.strongest.size());
      const AttendedPosition at = there ? group.strongest[static_cast<std::size_t>(i)] : AttendedPosition{};
      text += there ? fmt::format("{:>{}}{}", at.position, digits, small_bar(at.weight)) : repeat(" ", cell);
    }
    if (display_width(out + text) > columns) return cut(out, columns - 1) + "…";
    out += text;
  }
  return out;
}

/// The positions that the table names most often, so that one need not look them up.
void position_legend(Page& page, const Story& s) {
  constexpr std::size_t kMost = 12;
  std::map<std::int64_t, int> times;
  for (const ExplainedLayer& layer : s.e.layers) {
    for (const HeadGroup& group : layer.head_groups) {
      if (!group.strongest.empty()) ++times[group.strongest[0].position];
    }
  }
  std::vector<std::pair<std::int64_t, int>> named(times.begin(), times.end());
  std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (named.size() > kMost) named.resize(kMost);
  std::sort(named.begin(), named.end());
  std::string text;
  for (const auto& entry : named) {
    // a no-break space, so that page.text() keeps the two together
    text += fmt::format("{}{}\u00A0{}", text.empty() ? "" : ", ", entry.first, s.position_name(entry.first, 16));
  }
  page.text("Positions: " + text + ".");
}

void blocks(Page& page, const Story& s) {
  constexpr int kHeads = 36;
  page.heading("3 to 6 in every block, for the last token");
  page.text(
      "Norms of the stream after the block and of what attention and feed forward added to it; for each KV "
      "head, "
      "the positions looked at most, each with a bar for its weight (▁ little, █ all); and what the head "
      "would "
      "say if the model stopped there. Blocks count from 0, as in the names of the weights.");
  const auto line = [&](const std::string& block, double stream, const std::string& attention, const std::string& mlp,
                        const std::string& heads, const ReadOut& says) {
    return fmt::format("{:>5} {:>9} {:>9} {:>9}  {}  {} {}", block, norm(stream), attention, mlp, fit(heads, kHeads),
                       fit(s.name(says.top[0].id, 13), 13), right(percent(says.top[0].probability), 7));
  };
  page.column_names(
      fmt::format("block    stream attention  feed-fwd  {}  would say now", fit("looks at, per KV head", kHeads)));
  page.row(line("embed", s.e.embedding.l2, "", "", "", s.e.embedding_read_out));
  const int digits = static_cast<int>(std::to_string(s.last_position()).size());
  for (std::size_t i = 0; i < s.e.layers.size(); ++i) {
    const ExplainedLayer& layer = s.e.layers[i];
    const std::string text =
        line(std::to_string(i), layer.after_block.l2, norm(layer.attention.l2), norm(layer.feed_forward.l2),
             looks_at(layer.head_groups, digits, kHeads), layer.read_out);
    static_cast<std::int64_t>(i) == s.e.decided_at_layer ? page.marked_row(text + " ◂") : page.row(text);
  }
  position_legend(page, s);
}

/// The block of the decision, with what the table has no room for.
void closer_look(Page& page, const Story& s) {
  constexpr std::size_t kMostGroups = 16;
  constexpr int kCell = 22;
  const ExplainedLayer& layer = s.decided();
  page.text(
      fmt::format("◂ Block {}: from here on {} stays first. Attention added {} (cosine {} to the stream before it), "
                  "feed forward {} (cosine {}).",
                  s.e.decided_at_layer, s.name(s.e.likeliest), norm(layer.attention.l2), cosine(layer.attention.cosine),
                  norm(layer.feed_forward.l2), cosine(layer.feed_forward.cosine)));
  page.column_names(
      fmt::format("KV head  1st token   entropy  looks at (mean of {})", plural(s.group_size(), "query head")));
  const int digits = static_cast<int>(std::to_string(s.last_position()).size());
  for (std::size_t i = 0; i < std::min(kMostGroups, layer.head_groups.size()); ++i) {
    const HeadGroup& group = layer.head_groups[i];
    std::string looks;
    for (const AttendedPosition& at : group.strongest) {
      const int columns = kCell - digits - 10;
      looks += fmt::format("{:>{}} {} {}  ", at.position, digits, fit(s.position_name(at.position, columns), columns),
                           right(percent(at.weight), 6));
    }
    page.row(fmt::format("{:7}  {:>9}  {:>8}  {}", i, percent(group.first_token_share),
                         fmt::format("{:.2f} bit", group.entropy_bits), looks));
  }
}

void logit_lens(Page& page, const Story& s) {
  constexpr std::size_t kPerLine = 4;
  page.text(
      fmt::format("Logit lens, the same done to the stream after each block: rank (#1 is first) and probability of {}.",
                  s.name(s.e.likeliest)));
  std::string line;
  for (std::size_t i = 0; i < s.e.layers.size(); ++i) {
    const TokenPlace& place = s.e.layers[i].read_out.likeliest;
    line += fmt::format("{:>5}: #{} {}", i, fit(with_commas(place.rank), 7), fit(percent(place.probability), 8));
    if ((i + 1) % kPerLine != 0 && i + 1 != s.e.layers.size()) continue;
    page.row(line);
    line.clear();
  }
  const bool always = s.e.decided_at_layer == 0;
  page.text(fmt::format("Decided at block {} of 0 to {}: {} {}.", s.e.decided_at_layer, s.e.layers.size() - 1,
                        s.name(s.e.likeliest), always ? "is first after every block" : "is first from there on"));
}

void head(Page& page, const Story& s) {
  page.heading("7 Head");
  page.text(
      fmt::format("The stream after the last block is normalised and multiplied with one row of numbers for each of "
                  "{} tokens: these products are the logits, and a softmax makes probabilities of them.",
                  with_commas(s.info.vocab_size)));
  logit_lens(page, s);
  page.column_names("rank        id  token                 probability     logit");
  int rank = 0;
  for (const TokenScore& t : s.e.generation.top) {
    page.row(fmt::format("{:4}  {:8}  {}  {:>11}  {:8.4f}  {}", ++rank, t.id, fit(s.name(t.id, 20), 20),
                         probability(t.probability), t.logit, bar(t.probability, 30)));
  }
}

bool is_greedy(const SamplingParams& p) { return p.greedy || p.temperature == 0 || p.top_k == 1; }

/// The settings that do something; a greedy choice has only those that change logits.
std::string settings(const SamplingParams& p) {
  std::vector<std::string> parts;
  const auto add = [&](bool on, const char* name, auto value) {
    if (on) parts.push_back(fmt::format("{} {:g}", name, static_cast<double>(value)));
  };
  if (!p.logit_bias.empty()) parts.push_back(fmt::format("a bias on {}", plural(std::ssize(p.logit_bias), "token")));
  add(p.repetition_penalty != 1, "repetition penalty", p.repetition_penalty);
  add(p.presence_penalty != 0, "presence penalty", p.presence_penalty);
  add(p.frequency_penalty != 0, "frequency penalty", p.frequency_penalty);
  if (!is_greedy(p)) {
    add(true, "temperature", p.temperature);
    add(p.top_k > 0, "top-k", p.top_k);
    add(p.top_p < 1, "top-p", p.top_p);
    add(p.min_p > 0, "min-p", p.min_p);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void candidates(Page& page, const Story& s) {
  page.column_names("rank        id  token                   the model  the sampler");
  const auto line = [&](const std::string& rank, TokenId id, const std::string& model, double sampler) {
    const std::string text = fmt::format("{:>4}  {:8}  {}  {:>11}  {:>11}  {}", rank, id, fit(s.name(id, 20), 20),
                                         model, probability(sampler), bar(sampler, 30));
    id == s.e.chosen ? page.marked_row(text + " ◂") : page.row(text);
  };
  int rank = 0;
  bool has_chosen = false;
  for (const TokenScore& t : s.e.generation.candidates) {
    const auto& top = s.e.generation.top;
    const auto it = std::find_if(top.begin(), top.end(), [&](const TokenScore& other) { return other.id == t.id; });
    line(std::to_string(++rank), t.id, it == top.end() ? "" : probability(it->probability), t.probability);
    has_chosen |= t.id == s.e.chosen;
  }
  if (has_chosen) return;
  line("…", s.e.chosen, probability(s.e.layers.back().read_out.chosen.probability), s.e.draw.probability);
}

void draw(Page& page, const Story& s) {
  const Draw& draw = s.e.draw;
  const std::int64_t vocabulary = s.engine.tokenizer() ? s.engine.tokenizer()->vocab_size() : s.info.vocab_size;
  page.text(
      "The logits, changed by bias and penalties if there are any, are divided by the temperature; what the "
      "settings "
      "rule out is dropped, the rest is scaled to sum to 1, and a number drawn from the seed picks a token.");
  page.text(fmt::format("Settings: {}. They keep {} of {}.", settings(draw.sampling),
                        with_commas(s.e.generation.num_candidates), plural(vocabulary, "token")));
  candidates(page, s);
  if (s.e.generation.num_candidates == 1) {
    page.text("One token is kept, so whatever number is drawn picks it.");
  } else {
    page.text(
        fmt::format("Laid end to end, the kept tokens fill the line from 0 to 1; the number drawn from seed {} fell "
                    "between {:.4f} and {:.4f}.",
                    s.e.generation.seed, draw.from, draw.to));
  }
}

void sample(Page& page, const Story& s) {
  page.heading("8 Sample");
  if (is_greedy(s.e.draw.sampling)) {
    page.text("Greedy: the token with the highest logit is taken; nothing is left to chance.");
    const std::string changes = settings(s.e.draw.sampling);
    if (!changes.empty()) page.text("Settings that change logits first: " + changes + ".");
  } else {
    draw(page, s);
  }
  const auto& eos = s.info.eos_ids;
  const bool ends = std::find(eos.begin(), eos.end(), s.e.chosen) != eos.end();
  const TokenPlace& place = s.e.layers.back().read_out.chosen;
  const std::string id = s.has_text(s.e.chosen) ? fmt::format(" (id {})", s.e.chosen) : "";
  page.gap();
  page.marked_row(fmt::format("Next token: {}{}, number {} of the model's own list, with probability {}{}",
                              s.name(s.e.chosen), id, with_commas(place.rank), probability(place.probability),
                              ends ? "; it ends the text" : ""));
}

void print_text(const ExplainCommand& o, const Engine& engine, const Explanation& e) {
  const Story story{engine, engine.info(), e};
  Page page;
  page.text(
      fmt::format("From a prompt to its next token in eight stations, with the numbers of the prompt's last token: "
                  "what becomes of it decides what comes next. Model: {}, {}, {} parameters, {}.",
                  o.model.name(), story.info.architecture, short_count(story.info.parameters),
                  plural(story.info.num_layers, "block")));
  page.gap();
  for (const auto station : {tokenise, embed, normalise, position, attend, feed_forward}) {
    station(page, story);
    page.gap();
  }
  blocks(page, story);
  page.gap();
  closer_look(page, story);
  page.gap();
  head(page, story);
  page.gap();
  sample(page, story);
  write_out(page.str());
}

}  // namespace

int explain(const ExplainCommand& o) {
  Engine engine = o.model.load(/*preload=*/true);
  Request request = o.request.make_request(engine);
  request.max_tokens = 1;
  const Explanation e = vitrine::explain(engine, std::move(request), {.top = o.top});
  if (e.layers.empty()) {
    write_note("vitrine: " + e.generation.error);
    return kExitFailed;
  }
  if (o.json) {
    write_json(json_of(o.model.name(), engine, e));
  } else {
    print_text(o, engine, e);
  }
  return kExitFine;
}

}  // namespace vitrine::app
