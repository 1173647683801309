#include "model/weights/gguf/gguf_reader.hpp"

#include <bit>
#include <cstring>
#include <fmt/core.h>
#include <optional>
#include <unordered_set>

#include "ipc/base/check.hpp"
#include "ipc/base/checked.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;                 // "GGUF", little-endian
constexpr std::uint64_t kKeyRecordBytesMin = 8 + 1 + 4 + 1;  // length, a letter, type, a value
constexpr std::uint64_t kTensorRecordBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Bytes of one scalar of `type`; for a string the least that it takes (its length).
std::uint64_t element_bytes(GgufType type) {
    switch (type) {
        case GgufType::U8:
        case GgufType::I8:
        case GgufType::Bool:
            return 1;
        case GgufType::U16:
        case GgufType::I16:
            return 2;
        case GgufType::U32:
        case GgufType::I32:
        case GgufType::F32:
            return 4;
        case GgufType::U64:
        case GgufType::I64:
        case GgufType::F64:
        case GgufType::String:
            return 8;
        case GgufType::Array:
            break;
    }
    PACE_CHECK(false, "an array has no fixed element size");
}

/// Walks the bytes of one file. Every take_*() checks what is left first; the first failure is
/// the result of the whole parse.
class Parser {
public:
    Parser(std::span<const std::byte> bytes, const std::string& file)
        : bytes_{bytes}, file_{file} {}

    Result<GgufHeader> parse(GgufPart part);

private:
    [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }
    [[nodiscard]] Error bad(const std::string& what) const {
        return {Errc::BadFile, file_ + ": " + what};
    }
    Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view field);
    template <class T>
    Result<T> take_number(std::string_view field);
    Result<std::string_view> take_text(std::uint64_t bytes_max, std::string_view field);
    Result<GgufType> take_type(std::string_view field);
    Result<GgufValue> take_value(std::string_view field);
    Result<GgufValue> take_array(std::string_view field);
    Result<GgufTensorInfo> take_tensor();
    Result<std::uint64_t> take_count(std::string_view field,
                                     std::uint64_t count_max,
                                     std::uint64_t record_bytes_min);
    Status take_preamble(GgufHeader& header);
    Status take_values(std::uint64_t count, GgufHeader& header);
    Status take_tensors(std::uint64_t count, GgufHeader& header);
    Status read_alignment(GgufHeader& header) const;
    Status check_offsets(const GgufHeader& header) const;

    std::span<const std::byte> bytes_;
    const std::string& file_;
    std::uint64_t at_ = 0;  // <= bytes_.size()
};

Result<std::span<const std::byte>> Parser::take(std::uint64_t count, std::string_view field) {
    if (count > left()) {
        return bad(fmt::format("truncated: {} at byte {} needs {} bytes, {} are left", field, at_,
                               count, left()));
    }
    const std::span<const std::byte> taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
}

template <class T>
Result<T> Parser::take_number(std::string_view field) {
    const Result<std::span<const std::byte>> raw = take(sizeof(T), field);
    if (!raw) return raw.error();
    T value;
    std::memcpy(&value, raw.value().data(), sizeof value);
    return value;
}

Result<std::string_view> Parser::take_text(std::uint64_t bytes_max, std::string_view field) {
    const Result<std::uint64_t> length = take_number<std::uint64_t>(field);
    if (!length) return length.error();
    if (length.value() > bytes_max) {
        return bad(fmt::format("{} at byte {} claims {} bytes; the limit is {}", field, at_,
                               length.value(), bytes_max));
    }
    const Result<std::span<const std::byte>> raw = take(length.value(), field);
    if (!raw) return raw.error();
    return as_text(raw.value());
}

Result<GgufType> Parser::take_type(std::string_view field) {
    const Result<std::uint32_t> number = take_number<std::uint32_t>(field);
    if (!number) return number.error();
    if (number.value() > static_cast<std::uint32_t>(GgufType::F64)) {
        return bad(fmt::format("{} has value type {}; GGUF knows 0 to 12", field, number.value()));
    }
    return static_cast<GgufType>(number.value());
}

Result<GgufValue> Parser::take_value(std::string_view field) {
    const Result<GgufType> type = take_type(field);
    if (!type) return type.error();
    if (type.value() == GgufType::Array) return take_array(field);
    GgufValue value;
    value.type = type.value();
    if (value.type == GgufType::String) {
        const Result<std::string_view> text = take_text(kGgufStringBytesMax, field);
        if (!text) return text.error();
        value.payload = std::as_bytes(std::span(text.value()));
        return value;
    }
    const Result<std::span<const std::byte>> raw = take(element_bytes(value.type), field);
    if (!raw) return raw.error();
    value.payload = raw.value();
    if (value.type == GgufType::Bool && std::to_integer<unsigned>(value.payload[0]) > 1) {
        return bad(fmt::format("{} is a bool with the value {}", field,
                               std::to_integer<unsigned>(value.payload[0])));
    }
    return value;
}

Result<GgufValue> Parser::take_array(std::string_view field) {
    const Result<GgufType> element = take_type(field);
    if (!element) return element.error();
    if (element.value() == GgufType::Array) {
        return bad(std::string(field) + " is an array of arrays, which no model file needs");
    }
    const Result<std::uint64_t> count = take_number<std::uint64_t>(field);
    if (!count) return count.error();
    // The product is only formed where it cannot wrap: the count is bounded by division first.
    if (count.value() > left() / element_bytes(element.value())) {
        return bad(
            fmt::format("{} claims an array of {} values of type {}, but only {} bytes are left",
                        field, count.value(), name_of(element.value()), left()));
    }
    GgufValue array;
    array.type = GgufType::Array;
    array.element = element.value();
    array.count = count.value();
    const std::uint64_t begin = at_;
    if (array.element == GgufType::String) {
        for (std::uint64_t i = 0; i < array.count; ++i) {
            const Result<std::string_view> text = take_text(kGgufStringBytesMax, field);
            if (!text) return text.error();
        }
    } else {
        at_ += array.count * element_bytes(array.element);
    }
    array.payload = bytes_.subspan(begin, at_ - begin);
    return array;
}

Result<GgufTensorInfo> Parser::take_tensor() {
    GgufTensorInfo info;
    const Result<std::string_view> name = take_text(kGgufTensorNameBytesMax, "a tensor's name");
    if (!name) return name.error();
    info.name = name.value();
    const std::string field = "tensor " + quoted_text(info.name);
    if (info.name.empty()) return bad(fmt::format("a tensor without a name before byte {}", at_));
    const Result<std::uint32_t> dim_count = take_number<std::uint32_t>(field);
    if (!dim_count) return dim_count.error();
    info.dim_count = dim_count.value();
    if (info.dim_count == 0 || info.dim_count > kGgufDimsMax) {
        return bad(fmt::format("{} has {} dimensions; 1 to 4 are possible", field, info.dim_count));
    }
    for (std::uint32_t d = 0; d < info.dim_count; ++d) {
        const Result<std::uint64_t> dim = take_number<std::uint64_t>(field);
        if (!dim) return dim.error();
        if (dim.value() == 0) return bad(fmt::format("{}: dimension {} is 0", field, d));
        info.dims[d] = dim.value();
    }
    const Result<std::uint32_t> type = take_number<std::uint32_t>(field);
    if (!type) return type.error();
    info.ggml_type = type.value();
    const Result<std::uint64_t> offset = take_number<std::uint64_t>(field);
    if (!offset) return offset.error();
    info.offset = offset.value();
    return info;
}

Result<std::uint64_t> Parser::take_count(std::string_view field,
                                         std::uint64_t count_max,
                                         std::uint64_t record_bytes_min) {
    const Result<std::uint64_t> count = take_number<std::uint64_t>(field);
    if (!count) return count.error();
    if (count.value() > count_max || count.value() > bytes_.size() / record_bytes_min) {
        return bad(fmt::format(
            "{} is {}; the limit is {}, and a file of {} bytes holds fewer than {}", field,
            count.value(), count_max, bytes_.size(), bytes_.size() / record_bytes_min + 1));
    }
    return count;
}

Status Parser::take_preamble(GgufHeader& header) {
    const Result<std::uint32_t> magic = take_number<std::uint32_t>("magic");
    if (!magic) return magic.error();
    if (magic.value() != kMagic) {
        return bad("not a GGUF file: it begins with " + quoted_text(as_text(bytes_.first(4))) +
                   " instead of \"GGUF\"");
    }
    const Result<std::uint32_t> version = take_number<std::uint32_t>("version");
    if (!version) return version.error();
    header.version = version.value();
    if (header.version == 2 || header.version == 3) return {};
    if ((header.version & 0xFFFFU) == 0 && header.version != 0) {
        return Error{Errc::Unsupported,
                     file_ + ": a big-endian GGUF file; only little-endian is read"};
    }
    return Error{Errc::Unsupported, fmt::format("{}: GGUF version {}; versions 2 and 3 are read",
                                                file_, header.version)};
}

Status Parser::take_values(std::uint64_t count, GgufHeader& header) {
    header.values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        const Result<std::string_view> key = take_text(kGgufKeyBytesMax, fmt::format("key {}", i));
        if (!key) return key.error();
        if (key.value().empty()) return bad(fmt::format("key {} has an empty name", i));
        const Result<GgufValue> value = take_value("key " + quoted_text(key.value()));
        if (!value) return value.error();
        if (!header.values.emplace(key.value(), value.value()).second) {
            return bad("key " + quoted_text(key.value()) + " appears twice");
        }
    }
    return {};
}

Status Parser::take_tensors(std::uint64_t count, GgufHeader& header) {
    std::unordered_set<std::string_view> names;
    names.reserve(count);
    header.tensors.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        const Result<GgufTensorInfo> info = take_tensor();
        if (!info) return info.error();
        if (!names.insert(info.value().name).second) {
            return bad("tensor " + quoted_text(info.value().name) + " appears twice");
        }
        header.tensors.push_back(info.value());
    }
    return {};
}

Status Parser::read_alignment(GgufHeader& header) const {
    const auto found = header.values.find("general.alignment");
    if (found == header.values.end()) return {};
    const GgufValue& value = found->second;
    if (value.type != GgufType::U32) {
        return bad(std::string("general.alignment has type ") + name_of(value.type) +
                   "; it must be uint32");
    }
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value.payload.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kGgufAlignmentMax) {
        return bad(fmt::format("general.alignment is {}; it must be a power of two from 8 to {}",
                               alignment, kGgufAlignmentMax));
    }
    header.alignment = alignment;
    return {};
}

Status Parser::check_offsets(const GgufHeader& header) const {
    const std::uint64_t data_bytes = bytes_.size() - header.data_start;
    for (const GgufTensorInfo& info : header.tensors) {
        if (info.offset % header.alignment != 0) {
            return bad(
                fmt::format("tensor {} lies at offset {}, which is no multiple of the alignment {}",
                            quoted_text(info.name), info.offset, header.alignment));
        }
        if (info.offset >= data_bytes) {
            return bad(fmt::format(
                "truncated: tensor {} begins at byte {} of the data, of which there are {}",
                quoted_text(info.name), info.offset, data_bytes));
        }
    }
    return {};
}

Result<GgufHeader> Parser::parse(GgufPart part) {
    GgufHeader header;
    if (Status s = take_preamble(header); !s) return s.error();
    const Result<std::uint64_t> tensors =
        take_count("tensor count", kGgufTensorsMax, kTensorRecordBytesMin);
    if (!tensors) return tensors.error();
    const Result<std::uint64_t> keys = take_count("key count", kGgufKeysMax, kKeyRecordBytesMin);
    if (!keys) return keys.error();
    if (Status s = take_values(keys.value(), header); !s) return s.error();
    if (Status s = take_tensors(tensors.value(), header); !s) return s.error();
    if (Status s = read_alignment(header); !s) return s.error();

    const std::optional<std::uint64_t> start = checked_align_up(at_, header.alignment);
    if (header.tensors.empty()) {
        if (part == GgufPart::Whole) return bad("the file holds no tensors");
        header.data_start = bytes_.size();  // nothing follows, perhaps not even the padding
        return header;
    }
    if (!start || *start > bytes_.size()) {
        return bad(
            fmt::format("truncated: the tensor data would begin at byte {}, the file ends at {}",
                        start.value_or(0), bytes_.size()));
    }
    header.data_start = *start;
    if (Status s = check_offsets(header); !s) return s.error();
    return header;
}

}  // namespace

const char* name_of(GgufType type) {
    switch (type) {
        case GgufType::U8:
            return "uint8";
        case GgufType::I8:
            return "int8";
        case GgufType::U16:
            return "uint16";
        case GgufType::I16:
            return "int16";
        case GgufType::U32:
            return "uint32";
        case GgufType::I32:
            return "int32";
        case GgufType::F32:
            return "float32";
        case GgufType::Bool:
            return "bool";
        case GgufType::String:
            return "string";
        case GgufType::Array:
            return "array";
        case GgufType::U64:
            return "uint64";
        case GgufType::I64:
            return "int64";
        case GgufType::F64:
            return "float64";
    }
    PACE_CHECK(false, "a GgufType outside its enumeration");
}

bool begins_like_gguf(std::span<const std::byte> bytes) {
    std::uint32_t magic = 0;
    if (bytes.size() < sizeof magic) return false;
    std::memcpy(&magic, bytes.data(), sizeof magic);
    return magic == kMagic;
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> bytes,
                              const std::string& file,
                              GgufPart part) {
    return Parser(bytes, file).parse(part);
}

std::vector<std::string_view> strings_of(const GgufValue& array) {
    PACE_CHECK(array.type == GgufType::Array && array.element == GgufType::String,
               "only an array of strings has strings");
    std::vector<std::string_view> texts;
    texts.reserve(array.count);
    std::size_t at = 0;  // the parser walked the same records, so they are all there
    for (std::uint64_t i = 0; i < array.count; ++i) {
        std::uint64_t length = 0;
        std::memcpy(&length, array.payload.data() + at, sizeof length);
        at += sizeof length;
        texts.push_back(as_text(array.payload.subspan(at, length)));
        at += length;
    }
    return texts;
}

}  // namespace paceline
