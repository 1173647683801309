#include "model/weights/convert.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "ipc/base/check.hpp"
#include "model/weights/encode_row.hpp"
#include "model/weights/finite.hpp"
#include "model/weights/gguf/gguf_fused.hpp"
#include "model/weights/gguf/gguf_model_keys.hpp"
#include "model/weights/message_text.hpp"
#include "model/weights/model_parts.hpp"

namespace paceline {
namespace {

constexpr std::uint64_t kPieceBytes = 8U << 20U;  // of the written file, for each thread
constexpr std::uint32_t kQuantisationVersion = 2;

/// general.file_type, for people and for llama.cpp's log.
std::uint32_t file_type(StoredType type) {
    switch (type) {
        case StoredType::Q4_0:
            return 2;
        case StoredType::Q4_1:
            return 3;
        case StoredType::Q8_0:
            return 7;
        default:
            return 32;  // BF16
    }
}

bool is_wide(StoredType type) {
    return type == StoredType::F32 || type == StoredType::F16 || type == StoredType::BF16;
}

/// Keys that are about a file and not about its model.
bool is_of_the_file(std::string_view key) {
    return key == "general.file_type" || key == "general.quantization_version" ||
           key == "general.alignment" || key.starts_with("split.");
}

/// The keys of a GGUF file in its order.
Status copy_keys(const ModelFile& model, GgufKeyWriter& keys) {
    const MappedFile& file = model.contents().file;
    const Result<GgufHeader> header = parse_gguf(file.bytes(), file.path(), GgufPart::Shard);
    if (!header) return header.error();
    std::vector<std::pair<std::string_view, GgufValue>> values;
    for (const auto& [key, value] : header.value().values) {
        if (!is_of_the_file(key)) values.emplace_back(key, value);
    }
    std::sort(values.begin(), values.end(),
              [](const auto& a, const auto& b) { return a.first.data() < b.first.data(); });
    for (const auto& [key, value] : values) keys.add_value(std::string{key}, value);
    return {};
}

Status add_folder_keys(const ModelFile& model, const std::string& name, GgufKeyWriter& keys) {
    ModelConfig config = model.config();
    if (!name.empty()) config.name = name;
    const int long_context = model.contents().parts.long_rope.context;
    add_config_keys(config, std::max(config.context_length, long_context), keys);
    Status status = add_tokenizer_keys(model.tokenizer(), keys);
    if (status) status = add_chat_templates(model.contents().parts.chat, keys);
    if (status) return {};
    return Error{status.error().code, model.path() + ": " + status.error().what};
}

Status add_model_keys(const ModelFile& model, const ConvertOptions& options, GgufKeyWriter& keys) {
    if (options.weights_only) return {};
    return model.is_folder() ? add_folder_keys(model, options.name, keys) : copy_keys(model, keys);
}

using NamedFactors = std::vector<std::pair<const char*, std::vector<float>>>;

/// What GGUF has as tensors: Llama 3's list, or Phi's two. Where the context has no longer texts,
/// the short list stands for both, since readers want two.
NamedFactors rope_factors_of(const ModelParts& parts) {
    const std::vector<float>& factors = parts.config.rope.factors;
    if (factors.empty()) return {};
    if (!is_phi3(parts.config)) return {{"rope_freqs.weight", factors}};
    const std::vector<float>& longer = parts.long_rope.factors;
    return {{"rope_factors_short.weight", factors},
            {"rope_factors_long.weight", longer.empty() ? factors : longer}};
}

/// Rows [first, last) of the source; the row that is not finite, or nothing.
std::optional<std::int64_t> encode_rows(const ConvertedTensor& tensor,
                                        std::int64_t first,
                                        std::int64_t last,
                                        std::byte* out) {
    const std::size_t row_bytes = tensor.head.row_bytes();
    const bool kept = tensor.head.type == tensor.source.type;
    std::vector<float> values(static_cast<std::size_t>(tensor.head.cols));
    std::optional<std::int64_t> wrong;
    for (std::int64_t row = first; row < last; ++row, out += row_bytes) {
        dequantize_row(tensor.source, row, values);
        if (kept) {
            std::memcpy(out, tensor.source.row(row), row_bytes);
            if (!all_finite(values)) wrong = row;
        } else if (!encode_row(tensor.head.type, values, {out, row_bytes})) {
            wrong = row;
        }
    }
    return wrong;
}

/// The same by `threads` threads into `out`, which has room for these rows.
std::optional<std::int64_t> encode_piece(const ConvertedTensor& tensor,
                                         std::int64_t first,
                                         std::int64_t last,
                                         int threads,
                                         std::byte* out) {
    const std::int64_t rows = last - first;
    std::vector<std::optional<std::int64_t>> wrong(static_cast<std::size_t>(threads));
    const auto work = [&](int thread) {
        const std::int64_t begin = rows * thread / threads;
        const std::int64_t end = rows * (thread + 1) / threads;
        wrong[static_cast<std::size_t>(thread)] =
            encode_rows(tensor, first + begin, first + end,
                        out + static_cast<std::size_t>(begin) * tensor.head.row_bytes());
    };
    {
        std::vector<std::jthread> others;
        for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
        work(0);
    }
    const auto found =
        std::find_if(wrong.begin(), wrong.end(), [](const auto& row) { return row.has_value(); });
    return found == wrong.end() ? std::nullopt : *found;
}

/// Reports how far the whole file is, and whether to go on.
class Course {
public:
    Course(const ConvertOptions& options, std::uint64_t bytes) : options_{options}, bytes_{bytes} {}
    Status reached(const UnfinishedFile& out) const {
        if (options_.progress)
            options_.progress(static_cast<double>(out.bytes()) / static_cast<double>(bytes_));
        if (options_.stopped && options_.stopped())
            return Error{Errc::Cancelled, "the conversion was stopped"};
        return {};
    }

private:
    const ConvertOptions& options_;
    std::uint64_t bytes_;
};

Status write_tensor(const ModelFile& model,
                    const ConvertedTensor& tensor,
                    int threads,
                    const Course& course,
                    UnfinishedFile& out) {
    const std::uint64_t row_bytes = tensor.head.row_bytes();
    const std::uint64_t room = kPieceBytes * static_cast<std::uint64_t>(threads);
    const auto rows_at_once = static_cast<std::int64_t>(std::clamp<std::uint64_t>(
        room / row_bytes, 1, static_cast<std::uint64_t>(tensor.head.rows)));
    std::vector<std::byte> piece(static_cast<std::size_t>(rows_at_once) * row_bytes);
    for (std::int64_t first = 0; first < tensor.head.rows; first += rows_at_once) {
        const std::int64_t last = std::min(first + rows_at_once, tensor.head.rows);
        if (const auto wrong = encode_piece(tensor, first, last, threads, piece.data())) {
            return Error{
                Errc::BadFile,
                fmt::format("{}: tensor {} holds a number that is not finite, or too large "
                            "for {}, in row {}",
                            model.path(), quoted_text(tensor.head.name),
                            traits(tensor.head.type).name, *wrong)};
        }
        const auto bytes = static_cast<std::size_t>(last - first) * row_bytes;
        if (Status s = out.append(std::span{piece}.first(bytes)); !s) return s;
        if (Status s = course.reached(out); !s) return s;
    }
    const std::vector<std::byte> padding(tensor.head.padded_bytes() - tensor.head.bytes());
    return out.append(padding);
}

}  // namespace

StoredType converted_type(const TensorView& tensor, bool vocabulary, StoredType wanted) {
    if (tensor.rows == 1) return StoredType::F32;
    if (tensor.cols % traits(wanted).block_elements != 0) return tensor.type;
    const bool four_bits = wanted == StoredType::Q4_0 || wanted == StoredType::Q4_1;
    return vocabulary && four_bits ? StoredType::Q8_0 : wanted;
}

Result<ConvertPlan> plan_conversion(const ModelFile& model, const ConvertOptions& options) {
    PACE_CHECK(can_encode(options.type) && options.type != StoredType::F32, "a type to pack as");
    PACE_CHECK(model.lora() == nullptr, "the weights are the file's own");
    GgufKeyWriter keys;
    if (Status s = add_model_keys(model, options, keys); !s) return s.error();
    keys.add_u32("general.file_type", file_type(options.type));
    keys.add_u32("general.quantization_version", kQuantisationVersion);

    ConvertPlan plan;
    const auto add = [&](const TensorView& tensor, bool own) {
        const bool vocabulary =
            tensor.name == model.embedding().name || tensor.name == model.output_head().name;
        const StoredType type = converted_type(tensor, vocabulary, options.type);
        plan.tensors.push_back({{tensor.name, type, tensor.rows, tensor.cols}, tensor, own});
    };
    const bool joins = is_phi3(model.config()) && !options.weights_only;
    const Result<std::vector<TensorView>> tensors =
        joins ? join_fused(model.tensors(), model.path())
              : Result<std::vector<TensorView>>{model.tensors()};
    if (!tensors) return tensors.error();
    for (const TensorView& tensor : tensors.value()) {
        if (!is_wide(tensor.type)) {
            return Error{
                Errc::Unsupported,
                fmt::format("{}: tensor {} is packed already ({}); only F32, F16 and BF16 "
                            "can be converted",
                            model.path(), quoted_text(tensor.name), traits(tensor.type).name)};
        }
        add(tensor, false);
    }
    const NamedFactors factors = model.is_folder() && !options.weights_only
                                     ? rope_factors_of(model.contents().parts)
                                     : NamedFactors{};
    for (const auto& [name, numbers] : factors) {
        const auto bytes = std::as_bytes(std::span{plan.rope_factors.emplace_back(numbers)});
        add({.name = name,
             .type = StoredType::F32,
             .rows = 1,
             .cols = std::ssize(numbers),
             .data = bytes.data(),
             .bytes = bytes.size()},
            true);
    }
    std::vector<GgufTensorHead> heads;
    for (const ConvertedTensor& tensor : plan.tensors) heads.push_back(tensor.head);
    plan.head = gguf_head(keys, heads);
    plan.bytes = plan.head.size();
    for (const GgufTensorHead& head : heads) plan.bytes += head.padded_bytes();
    return plan;
}

Status write_converted(const ModelFile& model,
                       const ConvertPlan& plan,
                       const ConvertOptions& options,
                       UnfinishedFile& out) {
    const Course course{options, plan.bytes};
    const int threads = std::max(1, options.threads);
    if (Status s = out.append(plan.head); !s) return s;
    for (const ConvertedTensor& tensor : plan.tensors) {
        if (Status s = write_tensor(model, tensor, threads, course, out); !s) return s;
        if (!tensor.own) model.release(tensor.source);
    }
    return model.check_unchanged();
}

}  // namespace paceline
