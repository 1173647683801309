// Fuzzes the decoder of control messages: two bytes of type, then the body. What decodes must
// encode within its limits, and decode to the same again.
#include "ipc/wire/control.hpp"
#include "tests/fuzz/control_messages.hpp"
#include "tests/fuzz/fuzz.hpp"

using namespace paceline;
using namespace paceline::test;

FuzzBytes paceline::test::valid_input(SeededRandom& random) {
    const std::uint32_t which = random.below(kControlTypes);
    const std::vector<std::byte> body = control::encode(control_message(which, random));
    FuzzBytes input = {static_cast<std::uint8_t>(which + 1), 0};
    for (const std::byte byte : body) input.push_back(std::to_integer<std::uint8_t>(byte));
    return input;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzReader input{std::span{data, size}};
    const auto type = input.take<std::uint16_t>();
    const std::span<const std::byte> body = input.rest(size);
    const Result<control::Message> message = control::decode(type, body);
    if (!message.ok()) {
        PACE_CHECK(message.error().code == Errc::Protocol, "another error than it promises");
        return 0;
    }
    PACE_CHECK(static_cast<std::uint16_t>(control::type_of(message.value())) == type,
               "decoded to another type");
    const std::vector<std::byte> encoded = control::encode(message.value());
    PACE_CHECK(encoded.size() <= control::body_bytes_max(type), "a body over its type's limit");
    const Result<control::Message> again = control::decode(type, encoded);
    PACE_CHECK(again.ok() && control::encode(again.value()) == encoded, "not the same again");
    return 0;
}
