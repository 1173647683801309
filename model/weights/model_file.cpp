#include "model/weights/model_file.hpp"

#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/fingerprint.hpp"
#include "model/weights/gguf_file.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {

Result<ModelFile> ModelFile::open(const std::string& path) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    Result<ModelParts> parts = read_gguf(file.value().bytes(), path);
    if (!parts) return parts.error();
    return ModelFile(
        std::make_unique<Contents>(Contents{std::move(file).value(), std::move(parts).value()}));
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

std::uint64_t ModelFile::file_bytes() const {
    return contents_->file.bytes().size();
}

const ModelConfig& ModelFile::config() const {
    return contents_->parts.config;
}

const TokenizerData& ModelFile::tokenizer() const {
    const Contents* lender = contents_->lender;
    return lender != nullptr ? lender->parts.tokenizer : contents_->parts.tokenizer;
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
        const std::uint64_t own = fingerprint_of(contents.file.bytes(), contents.parts);
        return contents.merge ? mixed_fingerprint(own, contents.merge->content) : own;
    };
    const Contents* lender = contents_->lender;
    return lender == nullptr ? of(*contents_) : mixed_fingerprint(of(*contents_), of(*lender));
}

std::uint64_t ModelFile::plain_fingerprint() const {
    PACE_CHECK(contents_->lender == nullptr, "a target, which borrows nothing");
    return fingerprint_of(contents_->file.bytes(), contents_->parts);
}

const MergedLora* ModelFile::lora() const {
    return contents_->merge ? &contents_->merge->card : nullptr;
}

void ModelFile::release(const TensorView& tensor) const {
    if (tensor.data == nullptr) return;  // synthetic: nothing of it was ever mapped
    const std::span<const std::byte> own = contents_->file.bytes();
    const bool inside = tensor.data >= own.data() && tensor.data < own.data() + own.size();
    const Contents* lender = contents_->lender;
    const MappedFile& file = inside || lender == nullptr ? contents_->file : lender->file;
    file.release({tensor.data, tensor.bytes});
}

Status ModelFile::check_unchanged() const {
    const Contents* lender = contents_->lender;
    if (lender != nullptr) {
        if (Status s = lender->file.check_unchanged(); !s) return s;
    }
    return contents_->file.check_unchanged();
}

}  // namespace paceline
