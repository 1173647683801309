#include "model/weights/part_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <system_error>

#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr const char* kFormat = "parts-1";
constexpr std::array kPartKinds = {PartKind::Draft, PartKind::Heads, PartKind::Adapter,
                                   PartKind::Lora,  PartKind::Probe, PartKind::Eagle};
constexpr std::array kBlockTypes = {StoredType::Q8_0, StoredType::Q4_0, StoredType::Q4_1};

std::optional<std::uint64_t> parse_fingerprint(const std::string& text) {
    constexpr std::size_t kFingerprintDigits = 16;
    const bool lower = std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
    if (text.size() != kFingerprintDigits || !lower) return std::nullopt;
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

}  // namespace

const char* name_of(PartKind kind) {
    switch (kind) {
        case PartKind::Draft:
            return "draft";
        case PartKind::Heads:
            return "heads";
        case PartKind::Adapter:
            return "adapter";
        case PartKind::Lora:
            return "lora";
        case PartKind::Probe:
            return "probe";
        case PartKind::Eagle:
            return "eagle";
    }
    return "unknown";
}

Result<PartCard> read_card(const SafetensorsFile& file) {
    const auto bad = [&](Errc code, const std::string& what) {
        return Error{code, file.path() + ": " + what};
    };
    const auto get = [&](const char* key) { return file.metadata(key).value_or(""); };
    const std::string format = get("paceline.format");
    if (format.empty()) return bad(Errc::BadFile, "is no trained part: no \"paceline.format\"");
    if (format != kFormat) {
        return bad(Errc::Unsupported, "paceline.format is " + quoted_text(format) +
                                          ", this program reads \"parts-1\"");
    }
    PartCard card;
    const std::string kind = get("paceline.part");
    const auto* const known = std::find_if(kPartKinds.begin(), kPartKinds.end(),
                                           [&](PartKind k) { return kind == name_of(k); });
    if (known == kPartKinds.end()) {
        return bad(Errc::Unsupported, "paceline.part is " + quoted_text(kind) +
                                          "; known are \"draft\", \"heads\", \"adapter\", "
                                          "\"lora\", \"probe\" and \"eagle\"");
    }
    card.kind = *known;
    const std::string target = get("paceline.target");
    const std::optional<std::uint64_t> fingerprint = parse_fingerprint(target);
    if (!fingerprint) {
        return bad(Errc::BadFile, "paceline.target is " + quoted_text(target) +
                                      ", must be a fingerprint of 16 hexadecimal digits");
    }
    card.target = *fingerprint;
    card.name = get("paceline.name");
    card.licence = get("licence");
    return card;
}

PartReader::PartReader(const SafetensorsFile& file, const ModelConfig& target)
    : file_{file}, target_{target} {}

void PartReader::fail(const std::string& what) {
    if (status_.ok()) status_ = Error{Errc::BadFile, file_.path() + ": " + what};
}

int PartReader::number(const std::string& key, int lowest, int highest) {
    const std::string text = file_.metadata(key).value_or("");
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty()) {
        fail("metadata " + quoted_text(key) + " is missing");
    } else if (error != std::errc{} || end != text.data() + text.size() || value < lowest ||
               value > highest) {
        fail(fmt::format("metadata {} is {}, must be {} to {}", quoted_text(key), quoted_text(text),
                         lowest, highest));
    }
    return status_.ok() ? value : lowest;
}

double PartReader::real(const std::string& key) {
    const std::string text = file_.metadata(key).value_or("");
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty()) {
        fail("metadata " + quoted_text(key) + " is missing");
    } else if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
        fail("metadata " + quoted_text(key) + " is " + quoted_text(text) +
             ", must be a finite number");
    }
    return status_.ok() ? value : 0.0;
}

std::vector<int> PartReader::layers(const std::string& key) {
    const std::string text = file_.metadata(key).value_or("");
    std::vector<int> list;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end && status_.ok()) {
        int layer = 0;
        const auto [behind, error] = std::from_chars(at, end, layer);
        const int above = list.empty() ? 0 : list.back();
        const bool more = behind != end;
        if (error != std::errc{} || layer <= above || layer > target_.layers ||
            (more && (*behind != ',' || behind + 1 == end))) {
            fail(
                fmt::format("metadata {} is {}, must be ascending layers of 1 to {} with commas "
                            "between them",
                            quoted_text(key), quoted_text(text), target_.layers));
        }
        list.push_back(layer);
        at = more ? behind + 1 : end;
    }
    return list;
}

bool PartReader::flag(const std::string& key) {
    return number(key, 0, 1) == 1;
}

void PartReader::same(const std::string& key, int wanted) {
    constexpr int kLargest = 1 << 24;
    const int value = number(key, 1, kLargest);
    if (value != wanted) {
        fail(fmt::format("metadata {} is {}, the target has {}", quoted_text(key), value, wanted));
    }
}

bool PartReader::has(const std::string& tensor) const {
    return file_.find(tensor) != nullptr;
}

const StoredTensor* PartReader::take(const std::string& name) {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) fail("tensor " + quoted_text(name) + " is missing");
    taken_.insert(name);
    return tensor;
}

StoredType PartReader::type_of(const StoredTensor& tensor) {
    const std::optional<std::string> blocks = file_.metadata("type." + tensor.name);
    if (blocks) {
        const auto* const type =
            std::find_if(kBlockTypes.begin(), kBlockTypes.end(),
                         [&](StoredType t) { return *blocks == traits(t).name; });
        if (type == kBlockTypes.end()) {
            fail("metadata " + quoted_text("type." + tensor.name) + " is " + quoted_text(*blocks) +
                 ", known are Q8_0, Q4_0 and Q4_1");
            return StoredType::F32;
        }
        if (tensor.type != SafetensorsType::U8)
            fail("tensor " + describe(tensor) + " is said to be " + *blocks + ", which is U8");
        return *type;
    }
    switch (tensor.type) {
        case SafetensorsType::F32:
            return StoredType::F32;
        case SafetensorsType::F16:
            return StoredType::F16;
        case SafetensorsType::BF16:
            return StoredType::BF16;
        default:
            break;
    }
    fail("tensor " + describe(tensor) + " must be F32, F16 or BF16" +
         (tensor.type == SafetensorsType::U8
              ? ", or have its block type as metadata " + quoted_text("type." + tensor.name)
              : std::string{}));
    return StoredType::F32;
}

TensorView PartReader::view(const std::string& name, std::vector<std::int64_t> shape, bool blocks) {
    const StoredTensor* tensor = take(name);
    if (!status_.ok()) return {};
    const StoredType type = type_of(*tensor);
    if (!status_.ok()) return {};
    const TypeTraits stored = traits(type);
    TensorView out{.name = name,
                   .type = type,
                   .rows = shape.size() == 1 ? 1 : shape.front(),
                   .cols = shape.back(),
                   .data = tensor->bytes.data(),
                   .bytes = tensor->bytes.size()};
    if (stored.block_elements != 1) {
        if (!blocks || shape.back() % stored.block_elements != 0) {
            fail("tensor " + quoted_text(name) + " cannot be stored as " + stored.name);
            return {};
        }
        shape.back() = shape.back() / stored.block_elements * stored.block_bytes;
    }
    if (tensor->shape != shape) {
        fail("tensor " + describe(*tensor) + " must have the shape " + shape_text(shape));
        return {};
    }
    return out;
}

TensorView PartReader::matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return view(name, {rows, cols}, true);
}

TensorView PartReader::vector(const std::string& name, std::int64_t count) {
    TensorView tensor = view(name, {count}, false);
    if (status_.ok()) (void)values(tensor);
    return tensor;
}

std::vector<float> PartReader::values(const TensorView& tensor) {
    if (!status_.ok()) return {};
    std::vector<float> out(static_cast<std::size_t>(tensor.rows * tensor.cols));
    const auto cols = static_cast<std::size_t>(tensor.cols);
    for (std::int64_t row = 0; row < tensor.rows; ++row) {
        dequantize_row(tensor, row,
                       std::span{out}.subspan(static_cast<std::size_t>(row) * cols, cols));
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        if (std::isfinite(out[i])) continue;
        fail(fmt::format("tensor {} holds {} at {}; it must be finite", quoted_text(tensor.name),
                         number_text(static_cast<double>(out[i])), i));
        return {};
    }
    return out;
}

std::vector<float> PartReader::matrix_values(const std::string& name,
                                             std::int64_t rows,
                                             std::int64_t cols) {
    return values(matrix(name, rows, cols));
}

std::vector<float> PartReader::vector_values(const std::string& name, std::int64_t count) {
    return values(view(name, {count}, false));
}

std::vector<TokenId> PartReader::tokens() {
    const StoredTensor* tensor = take("tokens");
    if (!status_.ok()) return {};
    if (tensor->type != SafetensorsType::I32 || tensor->shape.size() != 1 ||
        tensor->bytes.empty()) {
        fail("tensor " + describe(*tensor) + " must be a list of I32 with at least one token");
        return {};
    }
    std::vector<TokenId> list(tensor->bytes.size() / sizeof(TokenId));
    std::memcpy(list.data(), tensor->bytes.data(), tensor->bytes.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
        const bool known = list[i] >= 0 && list[i] < target_.vocab_size;
        if (known && (i == 0 || list[i] > list[i - 1])) continue;
        fail(fmt::format(
            "tokens[{}] is {}{}", i, list[i],
            (known
                 ? ", must be above the one before it, " + std::to_string(list[i - 1])
                 : ", the target has the tokens 0 to " + std::to_string(target_.vocab_size - 1))));
        return {};
    }
    return list;
}

void PartReader::refuse_leftovers() {
    for (const StoredTensor& tensor : file_.contents().tensors) {
        if (taken_.contains(tensor.name)) continue;
        fail("tensor " + describe(tensor) + " has no place in this part");
    }
}

}  // namespace paceline
