#include "model/weights/fingerprint.hpp"

#include <algorithm>
#include <cstring>

namespace paceline {
namespace {

constexpr std::size_t kSampleBytes = 64;

/// Eight bytes at a time through the finaliser of splitmix64 (Steele, Lea, Flood 2014).
class Mixer {
public:
    void add(std::uint64_t word) {
        state_ += 0x9E3779B97F4A7C15U ^ word;
        state_ = (state_ ^ (state_ >> 30U)) * 0xBF58476D1CE4E5B9U;
        state_ = (state_ ^ (state_ >> 27U)) * 0x94D049BB133111EBU;
        state_ ^= state_ >> 31U;
    }
    void add(std::span<const std::byte> bytes) {
        add(bytes.size());  // so that "ab","c" is not "a","bc"
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
            add(word);
        }
    }
    [[nodiscard]] std::uint64_t value() const { return state_; }

private:
    std::uint64_t state_ = 0;
};

}  // namespace

std::uint64_t fingerprint_of(std::span<const std::byte> file,
                             const ModelParts& parts,
                             const std::function<void(const TensorView&)>& sampled) {
    Mixer mixer;
    mixer.add(file.size());
    mixer.add(file.first(parts.data_start));
    for (const TensorView& tensor : parts.tensors) {
        if (tensor.data == nullptr) continue;  // synthetic: the text in front says all of it
        const std::span<const std::byte> all(tensor.data, tensor.bytes);
        const std::size_t count = std::min(kSampleBytes, all.size());
        mixer.add(all.first(count));
        mixer.add(all.subspan((all.size() - count) / 2, count));
        mixer.add(all.last(count));
        sampled(tensor);
    }
    return mixer.value();
}

std::uint64_t fingerprint_of(std::span<const std::byte> bytes) {
    Mixer mixer;
    mixer.add(bytes);
    return mixer.value();
}

std::uint64_t mixed_fingerprint(std::uint64_t first, std::uint64_t second) {
    Mixer mixer;
    mixer.add(first);
    mixer.add(second);
    return mixer.value();
}

std::string fingerprint_text(std::uint64_t fingerprint) {
    constexpr const char* kHex = "0123456789abcdef";
    std::string text(16, '0');
    for (std::size_t i = text.size(); i-- > 0; fingerprint >>= 4U)
        text[i] = kHex[fingerprint & 15U];
    return text;
}

}  // namespace paceline
