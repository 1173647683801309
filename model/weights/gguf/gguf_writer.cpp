#include "model/weights/gguf/gguf_writer.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "ipc/base/check.hpp"
#include "model/weights/gguf/gguf_tensors.hpp"

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
constexpr std::uint32_t kVersion = 3;

std::uint64_t padded(std::uint64_t bytes) {
    return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
    const std::size_t begin = to.size();
    to.resize(begin + bytes.size());
    std::copy(bytes.begin(), bytes.end(), to.begin() + static_cast<std::ptrdiff_t>(begin));
}

template <class T>
void append_number(std::vector<std::byte>& to, T number) {
    append(to, std::as_bytes(std::span{&number, 1}));
}

void append_text(std::vector<std::byte>& to, std::string_view text) {
    append_number<std::uint64_t>(to, text.size());
    append(to, std::as_bytes(std::span{text.data(), text.size()}));
}

}  // namespace

void GgufKeyWriter::put(std::span<const std::byte> bytes) {
    append(bytes_, bytes);
}

template <class T>
void GgufKeyWriter::put_number(T number) {
    append_number(bytes_, number);
}

void GgufKeyWriter::put_text(std::string_view text) {
    PACE_CHECK(text.size() <= kGgufStringBytesMax, "a text that the reader takes");
    append_text(bytes_, text);
}

void GgufKeyWriter::begin(const std::string& key, GgufType type) {
    PACE_CHECK(keys_.insert(key).second, "no key twice");
    PACE_CHECK(!key.empty() && key.size() <= kGgufKeyBytesMax, "a key that the reader takes");
    put_text(key);
    put_number(static_cast<std::uint32_t>(type));
}

void GgufKeyWriter::begin_array(const std::string& key, GgufType element, std::size_t count) {
    begin(key, GgufType::Array);
    put_number(static_cast<std::uint32_t>(element));
    put_number<std::uint64_t>(count);
}

void GgufKeyWriter::add_text(const std::string& key, std::string_view text) {
    begin(key, GgufType::String);
    put_text(text);
}

void GgufKeyWriter::add_u32(const std::string& key, std::uint64_t number) {
    PACE_CHECK(number <= std::numeric_limits<std::uint32_t>::max(), "a number of 32 bits");
    begin(key, GgufType::U32);
    put_number(static_cast<std::uint32_t>(number));
}

void GgufKeyWriter::add_f32(const std::string& key, float number) {
    begin(key, GgufType::F32);
    put_number(number);
}

void GgufKeyWriter::add_bool(const std::string& key, bool value) {
    begin(key, GgufType::Bool);
    put_number(static_cast<std::uint8_t>(value ? 1 : 0));
}

void GgufKeyWriter::add_texts(const std::string& key, const std::vector<std::string>& texts) {
    begin_array(key, GgufType::String, texts.size());
    for (const std::string& text : texts) put_text(text);
}

void GgufKeyWriter::add_i32s(const std::string& key, const std::vector<std::int32_t>& numbers) {
    begin_array(key, GgufType::I32, numbers.size());
    put(std::as_bytes(std::span{numbers}));
}

void GgufKeyWriter::add_f32s(const std::string& key, const std::vector<float>& numbers) {
    begin_array(key, GgufType::F32, numbers.size());
    put(std::as_bytes(std::span{numbers}));
}

void GgufKeyWriter::add_value(const std::string& key, const GgufValue& value) {
    if (value.type == GgufType::Array) {
        begin_array(key, value.element, value.count);
    } else {
        begin(key, value.type);
        if (value.type == GgufType::String) put_number<std::uint64_t>(value.payload.size());
    }
    put(value.payload);
}

std::uint64_t GgufTensorHead::row_bytes() const {
    const TypeTraits shape = traits(type);
    PACE_CHECK(cols > 0 && cols % shape.block_elements == 0, "a row of whole blocks");
    return static_cast<std::uint64_t>(cols) / shape.block_elements * shape.block_bytes;
}

std::uint64_t GgufTensorHead::padded_bytes() const {
    return padded(bytes());
}

std::vector<std::byte> gguf_head(const GgufKeyWriter& keys,
                                 const std::vector<GgufTensorHead>& tensors) {
    std::vector<std::byte> head;
    append_number(head, kMagic);
    append_number(head, kVersion);
    append_number<std::uint64_t>(head, tensors.size());
    append_number<std::uint64_t>(head, keys.count());
    append(head, keys.bytes());
    std::uint64_t offset = 0;
    for (const GgufTensorHead& tensor : tensors) {
        PACE_CHECK(tensor.name.size() <= kGgufTensorNameBytesMax, "a name that the reader takes");
        append_text(head, tensor.name);
        const bool vector = tensor.rows == 1;
        append_number<std::uint32_t>(head, vector ? 1 : 2);
        append_number<std::uint64_t>(head, static_cast<std::uint64_t>(tensor.cols));
        if (!vector) append_number<std::uint64_t>(head, static_cast<std::uint64_t>(tensor.rows));
        append_number<std::uint32_t>(head, ggml_number(tensor.type));
        append_number<std::uint64_t>(head, offset);
        offset += tensor.padded_bytes();
    }
    head.resize(padded(head.size()));
    return head;
}

}  // namespace paceline
