#include "model/weights/packed_copy.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/weights/convert.hpp"
#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/gguf/gguf_tensors.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

constexpr std::string_view kSeal = "PACEseal";

std::uint64_t word_at(const std::byte* from) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, sizeof word);
    return word;
}

/// Bijective in each argument, so that a changed word changes the state, and stays seen.
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
    constexpr int kTurn = 29;
    return std::rotl((state ^ word) * kOdd, kTurn);
}

Error damaged(const std::string& path, const std::string& what) {
    return {Errc::BadFile, path + " is damaged: " + what};
}

/// Replaces one matrix of the folder by that of the copy.
class Swap {
public:
    Swap(const std::vector<TensorView>& tensors, const std::string& path, StoredType type)
        : path_{path}, type_{type} {
        for (const TensorView& tensor : tensors) by_name_.emplace(tensor.name, &tensor);
    }
    void matrix(TensorView& place, bool vocabulary) {
        const auto found = by_name_.find(place.name);
        if (found == by_name_.end()) return fail(place, "is missing");
        const TensorView& packed = *found->second;
        if (packed.rows != place.rows || packed.cols != place.cols ||
            packed.type != converted_type(place, vocabulary, type_))
            return fail(place, "has another shape or type");
        place = packed;  // rows in their order: head_rows is 0
    }
    [[nodiscard]] const Status& status() const { return status_; }

private:
    void fail(const TensorView& place, const char* what) {
        if (status_) status_ = damaged(path_, "tensor " + quoted_text(place.name) + " " + what);
    }
    const std::string& path_;
    StoredType type_;
    std::unordered_map<std::string_view, const TensorView*> by_name_;
    Status status_;
};

}  // namespace

std::uint64_t copy_checksum(std::span<const std::byte> bytes) {
    constexpr std::size_t kLanes = 8;  // independent, so that their multiplications overlap
    constexpr std::size_t kStep = kLanes * sizeof(std::uint64_t);
    std::array<std::uint64_t, kLanes> lanes{1, 2, 3, 4, 5, 6, 7, 8};
    const std::byte* at = bytes.data();
    const std::size_t whole = bytes.size() / kStep;
    for (std::size_t i = 0; i < whole; ++i, at += kStep) {
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            lanes[lane] = mixed(lanes[lane], word_at(at + lane * sizeof(std::uint64_t)));
    }
    std::uint64_t sum = bytes.size();
    for (const std::uint64_t lane : lanes) sum = mixed(sum, lane);
    for (const std::byte byte : bytes.subspan(whole * kStep))
        sum = mixed(sum, std::to_integer<std::uint64_t>(byte));
    return sum;
}

Status seal_copy(UnfinishedFile& out) {
    const Result<MappedFile> written = MappedFile::open(out.part());
    if (!written) return written.error();
    const std::span<const std::byte> bytes = written.value().bytes();
    // The disk may have been taken further than it is written (UnfinishedFile::reserve).
    const std::uint64_t sum = copy_checksum(bytes.first(out.bytes()));
    if (Status s = out.append(std::as_bytes(std::span{kSeal})); !s) return s;
    return out.append(std::as_bytes(std::span{&sum, 1}));
}

Status use_copy(ModelFile& folder, const std::string& path, StoredType type) {
    Result<MappedFile> opened = MappedFile::open(path);
    if (!opened) return opened.error();
    const std::span<const std::byte> all = opened.value().bytes();
    if (all.size() < kSealBytes) return damaged(path, "it has no seal");
    const std::span<const std::byte> bytes = all.first(all.size() - kSealBytes);
    if (std::memcmp(bytes.data() + bytes.size(), kSeal.data(), kSeal.size()) != 0)
        return damaged(path, "it has no seal");
    if (word_at(bytes.data() + bytes.size() + kSeal.size()) != copy_checksum(bytes))
        return damaged(path, "its checksum is not that of its bytes");
    opened.value().release(all);  // packing reads it again, tensor by tensor
    const Result<GgufHeader> header = parse_gguf(bytes, path);
    if (!header) return header.error();
    const Result<std::vector<TensorView>> tensors = view_tensors(bytes, header.value(), path);
    if (!tensors) return tensors.error();

    ModelFile::Contents& contents = folder.own_contents();
    // Nothing is changed before all of it fits.
    std::vector<LayerTensors> layers = contents.parts.layers;
    TensorView embedding = contents.parts.embedding;
    TensorView head = contents.parts.output_head;
    Swap swap{tensors.value(), path, type};
    for (LayerTensors& layer : layers) {
        for (TensorView LayerTensors::*matrix :
             {&LayerTensors::q, &LayerTensors::k, &LayerTensors::v, &LayerTensors::attn_out,
              &LayerTensors::gate, &LayerTensors::up, &LayerTensors::down})
            swap.matrix(layer.*matrix, false);
    }
    swap.matrix(embedding, true);
    swap.matrix(head, true);
    if (!swap.status()) return swap.status();
    contents.parts.layers = std::move(layers);
    contents.parts.embedding = std::move(embedding);
    contents.parts.output_head = std::move(head);
    contents.copy = std::move(opened).value();
    return {};
}

}  // namespace paceline
