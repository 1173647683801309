#include "model/weights/model_file.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/fingerprint.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/gguf/gguf_shards.hpp"
#include "model/weights/huggingface/folder.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

/// The file of `contents` in which `part` lies; nullptr: another model's.
const MappedFile* file_of(const ModelFile::Contents& contents, std::span<const std::byte> part) {
    const auto has = [&](const MappedFile& file) {
        const std::span<const std::byte> all = file.bytes();
        return part.data() >= all.data() && part.data() < all.data() + all.size();
    };
    if (has(contents.file)) return &contents.file;
    if (contents.copy && has(*contents.copy)) return &*contents.copy;
    const auto found = std::find_if(contents.shards.begin(), contents.shards.end(), has);
    return found == contents.shards.end() ? nullptr : &*found;
}

/// The same, or the file of the model that `contents` borrows from.
const MappedFile& holder(const ModelFile::Contents& contents, std::span<const std::byte> part) {
    const MappedFile* file = file_of(contents, part);
    if (file == nullptr && contents.lender != nullptr) file = file_of(*contents.lender, part);
    PACE_CHECK(file != nullptr, "a tensor lies in a file of its model");
    return *file;
}

/// Of the files' own bytes, without what is merged.
std::uint64_t plain_print(const ModelFile::Contents& contents) {
    // A sample may map a whole folio of the page cache, up to 2 MiB, which counts as this process's
    // memory.
    const auto release = [&](const TensorView& tensor) {
        const std::span bytes{tensor.data, tensor.bytes};
        const MappedFile* file = file_of(contents, bytes);
        if (file != nullptr) file->release(bytes);  // a shape has tensors that lie in no file
    };
    std::uint64_t print = fingerprint_of(contents.file.bytes(), contents.parts, release);
    // Of a folder shard_starts is empty: its `file` stands for all of them.
    for (std::size_t i = 0; i < contents.parts.shard_starts.size(); ++i) {
        const std::span<const std::byte> bytes = contents.shards[i].bytes();
        const std::uint64_t head = fingerprint_of(bytes.first(contents.parts.shard_starts[i]));
        print = mixed_fingerprint(print, mixed_fingerprint(bytes.size(), head));
    }
    return print;
}

/// A file of a folder (config.json, model.safetensors) that is named in place of the folder.
Status check_no_part_of_folder(const MappedFile& file) {
    if (begins_like_gguf(file.bytes())) return {};
    const std::filesystem::path folder = std::filesystem::path{file.path()}.parent_path();
    if (!MappedFile::exists((folder / "config.json").string())) return {};
    return Error{Errc::BadFile, file.path() +
                                    " is a file of a Hugging Face folder; name the folder: " +
                                    (folder.empty() ? "." : folder.string())};
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::string& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) {
        Result<Contents> folder = huggingface::read_folder(path);
        if (!folder) return folder.error();
        return ModelFile(std::make_unique<Contents>(std::move(folder).value()));
    }
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    if (Status whole = check_no_part_of_folder(file.value()); !whole) return whole.error();
    Result<std::vector<MappedFile>> opened = open_shards(std::move(file).value());
    if (!opened) return opened.error();
    std::vector<MappedFile>& files = opened.value();
    std::vector<GgufBytes> bytes;
    for (const MappedFile& each : files) bytes.push_back({each.bytes(), each.path()});
    Result<ModelParts> parts = read_gguf_shards(bytes);
    if (!parts) return parts.error();
    auto contents =
        std::make_unique<Contents>(Contents{std::move(files.front()), std::move(parts).value()});
    files.erase(files.begin());
    contents->shards = std::move(files);
    return ModelFile(std::move(contents));
}

ModelFile::ModelFile(std::unique_ptr<Contents> contents) : contents_{std::move(contents)} {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

std::unique_ptr<ModelFile::Contents> ModelFile::take_contents() && {
    return std::move(contents_);
}

const std::string& ModelFile::path() const {
    return contents_->file.path();
}

const std::string& ModelFile::format() const {
    return contents_->parts.format;
}

void ModelFile::choose_rope(int context) {
    ModelParts& parts = contents_->parts;
    ModelConfig& config = parts.config;
    if (context <= config.context_length || parts.long_rope.context <= config.context_length)
        return;
    config.rope.factors = std::move(parts.long_rope.factors);
    config.context_length = parts.long_rope.context;
    const auto remark =
        std::find(parts.remarks.begin(), parts.remarks.end(), parts.long_rope.remark);
    if (remark != parts.remarks.end()) parts.remarks.erase(remark);
    parts.long_rope = {};
}

int ModelFile::longest_context() const {
    return std::max(contents_->parts.config.context_length, contents_->parts.long_rope.context);
}

bool ModelFile::is_folder() const {
    return !contents_->shards.empty() && contents_->parts.shard_starts.empty();
}

std::uint64_t ModelFile::file_bytes() const {
    std::uint64_t bytes = is_folder() ? 0 : contents_->file.bytes().size();
    for (const MappedFile& shard : contents_->shards) bytes += shard.bytes().size();
    return bytes;
}

const ModelConfig& ModelFile::config() const {
    return contents_->parts.config;
}

const TokenizerData& ModelFile::tokenizer() const {
    const Contents* lender = contents_->lender;
    return lender != nullptr ? lender->parts.tokenizer : contents_->parts.tokenizer;
}

const SamplingDefaults& ModelFile::sampling_defaults() const {
    return contents_->parts.sampling;
}

const LayerTensors& ModelFile::layer(int index) const {
    PACE_CHECK(index >= 0 && index < config().layers, "the layer exists");
    return contents_->parts.layers[static_cast<std::size_t>(index)];
}

const TensorView& ModelFile::embedding() const {
    return contents_->parts.embedding;
}

const TensorView& ModelFile::output_norm() const {
    return contents_->parts.output_norm;
}

const TensorView& ModelFile::output_head() const {
    return contents_->parts.output_head;
}

const std::vector<TensorView>& ModelFile::tensors() const {
    return contents_->parts.tensors;
}

std::uint64_t ModelFile::fingerprint() const {
    const auto of = [](const Contents& contents) {
        const std::uint64_t own = plain_print(contents);
        return contents.merge ? mixed_fingerprint(own, contents.merge->content) : own;
    };
    const Contents* lender = contents_->lender;
    return lender == nullptr ? of(*contents_) : mixed_fingerprint(of(*contents_), of(*lender));
}

std::uint64_t ModelFile::plain_fingerprint() const {
    PACE_CHECK(contents_->lender == nullptr, "a target, which borrows nothing");
    return plain_print(*contents_);
}

const MergedLora* ModelFile::lora() const {
    return contents_->merge ? &contents_->merge->card : nullptr;
}

std::string ModelFile::copy_path() const {
    return contents_->copy ? contents_->copy->path() : std::string{};
}

void ModelFile::release(const TensorView& tensor) const {
    if (tensor.data == nullptr) return;  // synthetic: nothing of it was ever mapped
    release(std::span{tensor.data, tensor.bytes});
}

void ModelFile::release(std::span<const std::byte> part) const {
    if (!part.empty()) holder(*contents_, part).release(part);
}

Status ModelFile::check_unchanged() const {
    const Contents* own = contents_.get();
    for (const Contents* contents : {contents_->lender, own}) {
        if (contents == nullptr) continue;
        if (Status s = contents->file.check_unchanged(); !s) return s;
        if (contents->copy) {
            if (Status s = contents->copy->check_unchanged(); !s) return s;
        }
        for (const MappedFile& shard : contents->shards) {
            if (Status s = shard.check_unchanged(); !s) return s;
        }
    }
    return {};
}

}  // namespace paceline
