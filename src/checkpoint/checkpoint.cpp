// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.h"

#include <vitrine/error.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shards.h"

namespace vitrine {

namespace fs = std::filesystem;

namespace {

void add_number(Sha256& hash, std::uint64_t value) {
  std::byte bytes[8];
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
  hash.update(bytes);
}

/// To hash all of a file takes longer than to pack it, and would read what is otherwise read when it is first used.
/// Whoever changes weights changes the time or the size, and nearly always many of the pages; the sample is for tools
/// that set the time back (unpacking an archive, copying with -p), and for another fine-tune of the same shapes. A few
/// bytes changed in place under a forged time escape it.
void add_weight_file(Sha256& hash, const MappedFile& file) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kSampledPages = 64;
  const auto bytes = file.bytes();
  const std::size_t data_start = safetensors_data_start(bytes);
  // The lengths in front keep one part from being taken for the next.
  const std::string name = file.path().filename().string();
  add_number(hash, name.size());
  hash.update(name);
  add_number(hash, bytes.size());
  add_number(hash, static_cast<std::uint64_t>(file.modified_ns()));
  hash.update(bytes.first(data_start));
  if (data_start == bytes.size()) return;
  // Whole pages of the file, spread evenly, with the first and the last that hold data.
  const std::size_t first = data_start / kPage;
  const std::size_t last = (bytes.size() - 1) / kPage;
  const std::size_t count = std::min(kSampledPages, last - first + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t page = count == 1 ? first : first + (last - first) * i / (count - 1);
    const std::size_t begin = std::max(page * kPage, data_start);
    hash.update(bytes.subspan(begin, std::min((page + 1) * kPage, bytes.size()) - begin));
  }
}

}  // namespace

std::shared_ptr<const Checkpoint> Checkpoint::open(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorCode::kNotFound, folder.string() + ": expected a model folder, found " +
                                          (fs::exists(folder, error) ? "a file" : "nothing"));
  }
  const Shards shards = find_shards(folder);
  const std::shared_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = folder;
  checkpoint->config_ = read_model_config(folder);
  checkpoint->generation_config_ = read_generation_config(folder, checkpoint->config_.vocab_size);

  std::vector<std::vector<StoredTensor>> contents;
  for (const fs::path& path : shards.files) {
    checkpoint->files_.emplace_back(path);
    contents.push_back(parse_safetensors(checkpoint->files_.back().bytes(), path.string()));
  }
  check_shards(shards, contents);

  std::vector<std::pair<StoredTensor*, const std::byte*>> sorted;  // and the start of its file
  for (std::size_t i = 0; i < contents.size(); ++i) {
    for (StoredTensor& tensor : contents[i]) sorted.emplace_back(&tensor, checkpoint->files_[i].bytes().data());
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first->name < b.first->name; });
  // All names first: the views into them must not move.
  for (const auto& entry : sorted) checkpoint->names_.push_back(std::move(entry.first->name));
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [tensor, bytes] = sorted[i];
    checkpoint->tensors_.push_back({.data = bytes + tensor->begin,
                                    .dtype = tensor->dtype,
                                    .shape = std::move(tensor->shape),
                                    .name = checkpoint->names_[i]});
  }
  return checkpoint;
}

const Tensor* Checkpoint::find(std::string_view name) const noexcept {
  const auto place = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const Tensor& tensor, std::string_view n) { return tensor.name < n; });
  return place != tensors_.end() && place->name == name ? &*place : nullptr;
}

const fs::path& Checkpoint::file_of(const Tensor& tensor) const noexcept {
  for (const MappedFile& file : files_) {
    const auto bytes = file.bytes();
    // An empty tensor may lie right at the end of its file.
    if (tensor.data >= bytes.data() && tensor.data <= bytes.data() + bytes.size()) return file.path();
  }
  return folder_;
}

std::int64_t Checkpoint::file_bytes() const noexcept {
  std::int64_t total = 0;
  for (const MappedFile& file : files_) total += static_cast<std::int64_t>(file.bytes().size());
  return total;
}

std::string Checkpoint::identity() const {
  Sha256 hash;
  for (const MappedFile& file : files_) add_weight_file(hash, file);
  // To touch a page may map the two megabytes around it.
  release_pages();
  return to_hex(hash.finish());
}

void Checkpoint::release_pages() const noexcept {
  for (const MappedFile& file : files_) file.release_pages();
}

void Checkpoint::populate(const std::function<void(std::int64_t, std::int64_t)>& progress) const {
  constexpr std::size_t kStep = std::size_t{64} << 20;
  const std::int64_t total = file_bytes();
  std::int64_t done = 0;
  for (const MappedFile& file : files_) {
    const std::size_t size = file.bytes().size();
    for (std::size_t begin = 0; begin < size; begin += kStep) {
      const std::size_t end = std::min(size, begin + kStep);
      file.populate(begin, end);
      done += static_cast<std::int64_t>(end - begin);
      if (progress) progress(done, total);
    }
  }
}

}  // namespace vitrine
