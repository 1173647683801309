// GGUF v3, byte level, for writing: what stands in front of the tensor data.
//
// Handles the layout of the bytes, not their meaning; gguf_reader.hpp reads the same. Values of
// the caller are in this machine's byte order, which is little endian everywhere Paceline runs.
//
// Pure but for what GgufKeyWriter collects. Preconditions, checked: no key twice, names within the
// limits of gguf_reader.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/weights/gguf/gguf_reader.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

inline constexpr std::uint64_t kGgufAlignment = 32;  // of what is written

/// The key-values, in the order in which they are added.
class GgufKeyWriter {
public:
    void add_text(const std::string& key, std::string_view text);
    void add_u32(const std::string& key, std::uint64_t number);  // must fit
    void add_f32(const std::string& key, float number);
    void add_bool(const std::string& key, bool value);
    void add_texts(const std::string& key, const std::vector<std::string>& texts);
    void add_i32s(const std::string& key, const std::vector<std::int32_t>& numbers);
    void add_f32s(const std::string& key, const std::vector<float>& numbers);
    /// As another file has it.
    void add_value(const std::string& key, const GgufValue& value);

    [[nodiscard]] bool has(const std::string& key) const { return keys_.contains(key); }
    [[nodiscard]] std::size_t count() const { return keys_.size(); }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

private:
    void begin(const std::string& key, GgufType type);
    void begin_array(const std::string& key, GgufType element, std::size_t count);
    void put(std::span<const std::byte> bytes);
    template <class T>
    void put_number(T number);
    void put_text(std::string_view text);

    std::set<std::string> keys_;
    std::vector<std::byte> bytes_;
};

/// A tensor that will follow: [cols], or [cols, rows] where there are several rows.
struct GgufTensorHead {
    std::string name;
    StoredType type = StoredType::F32;
    std::int64_t rows = 1;
    std::int64_t cols = 0;

    [[nodiscard]] std::uint64_t row_bytes() const;
    [[nodiscard]] std::uint64_t bytes() const {
        return row_bytes() * static_cast<std::uint64_t>(rows);
    }
    /// With the zeros that the next tensor begins after.
    [[nodiscard]] std::uint64_t padded_bytes() const;
};

/// Everything in front of the data; the data are the tensors in this order, each with its padding.
[[nodiscard]] std::vector<std::byte> gguf_head(const GgufKeyWriter& keys,
                                               const std::vector<GgufTensorHead>& tensors);

}  // namespace paceline
