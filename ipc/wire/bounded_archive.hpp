// Bounded containers over cereal's portable binary archive, for bytes that a peer sent.
//
// cereal takes a container's length from the wire straight into resize(). Here a length is
// checked against the field's limit AND against the bytes that are left, before any memory is
// taken. The headers of cereal that bring containers, pointers or polymorphism are not included,
// so that nothing unbounded compiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <streambuf>
#include <type_traits>
#include <vector>

// The adapter through which an archive knows its buffer; cereal guards it with this name.
#define CEREAL_FUTURE_EXPERIMENTAL
#include <cereal/archives/adapters.hpp>
#include <cereal/archives/portable_binary.hpp>
#include <cereal/cereal.hpp>

#include "ipc/base/ids.hpp"

namespace paceline {

template <class Archive, class Tag, class Rep>
void serialize(Archive& archive, Strong<Tag, Rep>& id) {
    archive(id.value);
}

/// Reads from memory that it does not own, and knows how much is left.
class SpanBuffer : public std::streambuf {
public:
    explicit SpanBuffer(std::span<const std::byte> bytes) {
        // streambuf wants a pointer to non-const; nothing is ever put back.
        char* begin = const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
        setg(begin, begin, begin + bytes.size());
    }
    [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(egptr() - gptr()); }
};

/// Appends to a vector.
class VectorBuffer : public std::streambuf {
public:
    explicit VectorBuffer(std::vector<std::byte>& bytes) : bytes_{bytes} {}

protected:
    std::streamsize xsputn(const char* text, std::streamsize count) override {
        const auto* begin = reinterpret_cast<const std::byte*>(text);
        bytes_.insert(bytes_.end(), begin, begin + count);
        return count;
    }
    int_type overflow(int_type c) override {
        if (c != traits_type::eof()) bytes_.push_back(static_cast<std::byte>(c));
        return c;
    }

private:
    std::vector<std::byte>& bytes_;
};

using BoundedInput = cereal::UserDataAdapter<SpanBuffer, cereal::PortableBinaryInputArchive>;
using BoundedOutput = cereal::PortableBinaryOutputArchive;

template <class Container>
struct Bounded {
    Container& items;
    std::uint32_t count_max;
    std::size_t item_bytes_min;  // on the wire
};

/// `items` with at most `count_max` of them; an item takes at least `item_bytes_min` on the wire.
template <class Container>
[[nodiscard]] Bounded<Container> bounded(Container& items,
                                         std::uint32_t count_max,
                                         std::size_t item_bytes_min = 1) {
    return {items, count_max, item_bytes_min};
}

template <class Container>
inline constexpr bool kIsRaw = sizeof(typename std::remove_const_t<Container>::value_type) == 1;

template <class Archive, class Container>
void save(Archive& archive, const Bounded<Container>& field) {
    const auto count = static_cast<std::uint32_t>(field.items.size());
    archive(count);
    if constexpr (kIsRaw<Container>) {
        archive(cereal::binary_data(field.items.data(), count));
    } else {
        for (const auto& item : field.items) archive(item);
    }
}

template <class Archive, class Container>
void load(Archive& archive, Bounded<Container>& field) {
    std::uint32_t count = 0;
    archive(count);
    const std::size_t left = cereal::get_user_data<SpanBuffer>(archive).left();
    if (count > field.count_max) throw cereal::Exception("a count over its limit");
    if (count > left / field.item_bytes_min) throw cereal::Exception("a count beyond the message");
    field.items.resize(count);
    if constexpr (kIsRaw<Container>) {
        archive(cereal::binary_data(field.items.data(), count));
    } else {
        for (auto& item : field.items) archive(item);
    }
}

}  // namespace paceline
