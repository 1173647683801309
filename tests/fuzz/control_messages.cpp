#include "tests/fuzz/control_messages.hpp"

namespace paceline::test {
namespace {

std::string some_text(SeededRandom& random) {
    return std::string(random.below(12), static_cast<char>('a' + random.below(26)));
}

std::vector<std::byte> some_bytes(SeededRandom& random) {
    return std::vector<std::byte>(random.below(40), static_cast<std::byte>(random.next()));
}

StageId some_stage(SeededRandom& random) {
    return StageId{static_cast<std::uint16_t>(random.below(70'000))};
}

std::vector<StageId> some_stages(SeededRandom& random) {
    std::vector<StageId> stages(random.below(control::kActorsMax + 1));
    for (StageId& stage : stages) stage = some_stage(random);
    return stages;
}

std::vector<control::EdgeWire> some_edges(SeededRandom& random) {
    std::vector<control::EdgeWire> edges(random.below(5));
    for (control::EdgeWire& edge : edges) {
        edge = {some_stage(random),     some_stage(random),
                Epoch{random.below(9)}, random.one_in(2),
                random.below(9),        random.below(9),
                random.below(9),        static_cast<Transport>(random.below(4)),
                some_text(random)};
    }
    return edges;
}

control::Hello some_hello(SeededRandom& random) {
    control::Hello hello;
    hello.wire_version = random.below(4);
    hello.pid = random.below(100'000);
    hello.role = some_text(random);
    hello.equality_class = some_text(random);
    hello.model_fingerprint = some_text(random);
    hello.vocab_size = random.below(200'000);
    hello.last_layer = random.below(100);
    hello.weight_bytes = random.next();
    hello.pinned_bytes = random.next();
    return hello;
}

}  // namespace

control::Message control_message(std::uint32_t which, SeededRandom& random) {
    const Epoch epoch{random.below(9)};
    switch (static_cast<control::Type>(which + 1)) {
        case control::Type::Assign:
            return control::Assign{some_stage(random), epoch, some_stages(random),
                                   some_text(random), some_bytes(random)};
        case control::Type::Hello:
            return some_hello(random);
        case control::Type::Wire:
            return control::Wire{random.below(9), random.below(50), random.below(9000),
                                 random.below(90'000), some_edges(random)};
        case control::Type::Ready:
            return control::Ready{epoch};
        case control::Type::Begin:
            return control::Begin{RequestId{random.next()}, Attempt{random.below(5)},
                                  some_bytes(random)};
        case control::Type::Failed:
            return control::Failed{static_cast<std::uint8_t>(random.next()), some_text(random)};
        case control::Type::Shutdown:
            return control::Shutdown{};
        case control::Type::Unwire:
            return control::Unwire{some_stages(random), epoch};
        case control::Type::Rewire:
            return control::Rewire{some_stages(random), epoch, some_edges(random)};
        case control::Type::Rewired:
            return control::Rewired{some_stage(random), epoch};
        case control::Type::EdgeFault:
            return control::EdgeFault{some_stage(random), epoch, some_text(random)};
        case control::Type::EdgeOffer:
            return control::EdgeOffer{some_stage(random), epoch, some_stage(random),
                                      Epoch{random.below(9)}, some_bytes(random)};
        case control::Type::BeginWanted:
            return control::BeginWanted{RequestId{random.next()}, Attempt{random.below(5)},
                                        static_cast<Position>(random.next())};
        case control::Type::PagesWanted:
            return control::PagesWanted{RequestId{random.next()}, Attempt{random.below(5)},
                                        random.below(99)};
    }
    return control::Shutdown{};
}

}  // namespace paceline::test
