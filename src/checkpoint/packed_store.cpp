// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_store.h"

#include <vitrine/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "checkpoint/packed_folder.h"

namespace vitrine {
namespace {

constexpr std::int64_t round_up(std::int64_t value) {
  return (value + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

}  // namespace

PackedStore::PackedStore(PackedKey key, Options options) : key_(std::move(key)), options_(std::move(options)) {
  VITRINE_CHECK(key_.source.size() == 64 && !key_.form.empty() && options_.expected_bytes >= 0);
  directory_.key = key_;
  if (!options_.use_file) return;
  if (options_.budget_bytes < 0) options_.budget_bytes = cache_budget();
  if (options_.folder.empty()) options_.folder = default_cache_folder();
  if (options_.folder.empty()) {
    warn("no folder for them: expected one of VITRINE_CACHE, XDG_CACHE_HOME and HOME, found none set");
    return;
  }
  remove_abandoned(options_.folder);
  if (options_.expected_bytes > options_.budget_bytes) {
    warn("expected at most " + size_text(options_.budget_bytes) + " (VITRINE_CACHE_BUDGET), found " +
         size_text(options_.expected_bytes));
    return;
  }
  path_ = packed_path(options_.folder, key_);
  open_existing();
}

void PackedStore::open_existing() {
  try {
    existing_.emplace(path_);
  } catch (const Error&) {  // not there, or as good as
    return;
  }
  auto directory = parse_packed(existing_->bytes());
  if (!directory || !directory->key.matches(key_)) {
    existing_.reset();
    return;
  }
  existing_directory_ = std::move(*directory);
  mapped_ = true;
  file_ = path_;
  mark_used(path_);
}

const std::byte* PackedStore::get(std::string_view name, std::string_view tag, std::int64_t bytes,
                                  const std::function<void(std::byte*)>& fill) {
  VITRINE_CHECK(!finished_ && bytes >= 0);
  const auto serves = [&](const PackedEntry& entry) { return entry.tag == tag && entry.bytes == bytes; };
  if (mapped_) {
    const auto place = existing_directory_.entries.find(name);
    if (place != existing_directory_.entries.end() && serves(place->second)) {
      taken_.emplace_back(name);
      return existing_->bytes().data() + place->second.begin;
    }
    leave_existing();
  }
  if (const auto place = directory_.entries.find(name); place != directory_.entries.end()) {
    VITRINE_CHECK(serves(place->second));
    return memory_->data() + place->second.begin;
  }
  return pack(name, tag, bytes, fill);
}

/// A file that lacks something is replaced by a whole one, with what was good in it.
void PackedStore::leave_existing() {
  mapped_ = false;
  file_.clear();
  for (const std::string& name : taken_) {
    if (directory_.entries.contains(name)) continue;
    const PackedEntry& entry = existing_directory_.entries.at(name);
    pack(name, entry.tag, entry.bytes, [&](std::byte* out) {
      std::memcpy(out, existing_->bytes().data() + entry.begin, static_cast<std::size_t>(entry.bytes));
    });
  }
}

void PackedStore::begin_packing() {
  // Every entry may lose up to a page to its alignment; addresses are plenty.
  const std::int64_t slack = options_.expected_bytes / 16 + (std::int64_t{64} << 20);
  memory_.emplace(kPackedAlignment + options_.expected_bytes + slack);
  if (path_.empty()) return;
  new_file_.emplace(path_);
  if (!new_file_->create(options_.expected_bytes)) give_up(new_file_->problem());
}

/// Always into memory first. Then the file's pages take its place: writing to them directly would be no faster, and a
/// full disk would be a signal instead of an error.
const std::byte* PackedStore::pack(std::string_view name, std::string_view tag, std::int64_t bytes,
                                   const std::function<void(std::byte*)>& fill) {
  if (!memory_) begin_packing();
  const std::int64_t begin = round_up(used_);
  VITRINE_CHECK(begin <= memory_->capacity() && bytes <= memory_->capacity() - begin);  // else expected_bytes was wrong
  memory_->grow(begin + bytes);
  used_ = begin + bytes;
  fill(memory_->data() + begin);
  directory_.entries.emplace(std::string(name), PackedEntry{.tag = std::string(tag), .begin = begin, .bytes = bytes});
  if (new_file_) write(begin, bytes);
  packed_ += bytes;
  if (options_.progress) options_.progress(packed_, std::max(packed_, options_.expected_bytes));
  return memory_->data() + begin;
}

void PackedStore::write(std::int64_t begin, std::int64_t bytes) {
  // Pieces, so that little of a large matrix is in memory twice.
  constexpr std::int64_t kPiece = std::int64_t{16} << 20;
  const std::int64_t end = begin + bytes;
  for (std::int64_t at = begin; at < end; at += kPiece) {
    const std::int64_t count = std::min(kPiece, end - at);
    bool good = new_file_->write({memory_->data() + at, static_cast<std::size_t>(count)}, at);
    if (good && !memory_->show_file(new_file_->fd(), at, count)) good = new_file_->fail("mapped", errno);
    if (!good) return give_up(new_file_->problem());
    written_ = at + count;
  }
}

void PackedStore::finish() {
  if (finished_) return;
  finished_ = true;
  if (new_file_) publish();
  if (memory_) memory_->seal(used_);
  if (options_.use_file && !options_.folder.empty()) trim_packed(options_.folder, file_, options_.budget_bytes);
}

void PackedStore::publish() {
  const std::int64_t begin = round_up(used_);
  const PackedEnds ends = encode_packed(directory_, begin);
  const std::int64_t total = begin + static_cast<std::int64_t>(ends.directory.size());
  if (total > options_.budget_bytes) {
    // The file loses its name, but stays behind the mapping until the end.
    warn("expected at most " + size_text(options_.budget_bytes) + " (VITRINE_CACHE_BUDGET), found " + size_text(total));
  } else if (new_file_->write(std::as_bytes(std::span(ends.directory)), begin) &&
             new_file_->write(std::as_bytes(std::span(ends.header)), 0) && new_file_->publish()) {
    file_ = path_;
  } else {
    return give_up(new_file_->problem());
  }
  new_file_.reset();
}

void PackedStore::give_up(const std::string& problem) {
  warn(problem);
  memory_->leave_file(new_file_->fd(), written_);
  new_file_.reset();
}

void PackedStore::warn(const std::string& problem) {
  warnings_.push_back("the packed weights are kept in memory alone and will be packed again at the next start: " +
                      problem);
}

void PackedStore::populate(const Progress& progress) const {
  if (!mapped_) return;
  constexpr std::size_t kStep = std::size_t{64} << 20;
  const std::size_t size = existing_->bytes().size();
  for (std::size_t begin = 0; begin < size; begin += kStep) {
    const std::size_t end = std::min(size, begin + kStep);
    existing_->populate(begin, end);
    if (progress) progress(static_cast<std::int64_t>(end), static_cast<std::int64_t>(size));
  }
}

std::int64_t PackedStore::bytes() const noexcept {
  return mapped_ ? static_cast<std::int64_t>(existing_->bytes().size()) : used_;
}

}  // namespace vitrine
