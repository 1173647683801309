// Probes: the score, and the part that they are read from.
#include "model/sampling/probe.hpp"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "model/weights/lora.hpp"
#include "model/weights/sha256.hpp"
#include "model/weights/trained_parts.hpp"
#include "tests/support/contains.hpp"
#include "tests/support/fixture_model.hpp"
#include "tests/unit/weights/lora_builder.hpp"

namespace paceline {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): test helpers in a test file
using testing::contains;
using testing::open_fixture;

void add_probe(SafetensorsBuilder& part, const std::string& at, float v, float b) {
    part.add_values("exit." + at + ".v", "F32", {64}, std::vector<float>(64, v));
    part.add_values("exit." + at + ".b", "F32", {1}, std::vector<float>{b});
}

struct Opened {
    TestFolder folder;
    std::string path = (folder.path() / "probe.safetensors").string();

    Result<ProbePart> operator()(const SafetensorsBuilder& part, const ModelFile& target) const {
        part.write(path);
        return open_probe_part(path, target);
    }
    std::string refusal(const SafetensorsBuilder& part, const ModelFile& target) const {
        const Result<ProbePart> opened = (*this)(part, target);
        REQUIRE(!opened.ok());
        CHECK(contains(opened.error().what, "probe.safetensors"));
        return opened.error().what;
    }
};

TEST_CASE("the score is the sigmoid of the product with the normed state, by hand") {
    const Probe probe{.layer = 1, .v = {1.0F, -2.0F, 0.5F, 0.0F}, .b = 0.25F};
    const std::vector<float> hidden{3.0F, 1.0F, -1.0F, 5.0F};
    // squares 36, rms 3; v . h = 3 - 2 - 0.5 = 0.5
    CHECK(probe_score(hidden, probe, 0.0F) ==
          doctest::Approx(1.0 / (1.0 + std::exp(-(0.5 / 3.0 + 0.25)))).epsilon(1e-12));
    // With epsilon 16: rms 5.
    CHECK(probe_score(hidden, probe, 16.0F) ==
          doctest::Approx(1.0 / (1.0 + std::exp(-(0.1 + 0.25)))).epsilon(1e-12));
    const std::vector<float> nothing(4, 0.0F);
    CHECK(probe_score(nothing, probe, 1e-5F) == doctest::Approx(1.0 / (1.0 + std::exp(-0.25))));
    const Probe sure{.v = {1e6F, 0.0F, 0.0F, 0.0F}};
    CHECK(probe_score(hidden, sure, 1e-5F) == 1.0);
    const Probe never{.v = {-1e6F, 0.0F, 0.0F, 0.0F}};
    CHECK(probe_score(hidden, never, 1e-5F) == 0.0);
}

TEST_CASE("a part of probes has one for each exit, head and mode that it names") {
    const ModelFile target = open_fixture("tiny-chat");
    SafetensorsBuilder part = part_of("probe", target);
    add_probe(part, "1.lens.greedy", 0.5F, -1.0F);
    add_probe(part, "2.head.sampled", 0.25F, 2.0F);
    const Result<ProbePart> opened = Opened{}(part, target);
    if (!opened) FAIL(opened.error().what);
    CHECK(opened.value().probes.size() == 2);
    const Probe* probe = opened.value().find(2, ProbeHead::Trained, ProbeMode::Sampled);
    REQUIRE(probe != nullptr);
    CHECK(probe->v == std::vector<float>(64, 0.25F));
    CHECK(probe->b == 2.0F);
    CHECK(opened.value().find(1, ProbeHead::Lens, ProbeMode::Greedy) != nullptr);
    CHECK(opened.value().find(1, ProbeHead::Lens, ProbeMode::Sampled) == nullptr);
    CHECK(opened.value().find(2, ProbeHead::Lens, ProbeMode::Sampled) == nullptr);
    CHECK(opened.value().card.kind == PartKind::Probe);
}

TEST_CASE("the digest of a file is the beginning of its SHA-256") {
    const auto of = [](const std::string& text) {
        return sha256_text(std::as_bytes(std::span{text}));
    };
    CHECK(of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    CHECK(of(std::string(1000, 'a')) ==
          "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
    const TestFolder folder;
    const std::string path = (folder.path() / "abc").string();
    std::ofstream{path} << "abc";
    CHECK(file_digest(path).value() == "ba7816bf8f01cfea");
    CHECK(contains(file_digest(path + "d").error().what, "abcd"));
}

TEST_CASE("of a file with probes for two targets each gets its own") {
    const Opened open;
    const ModelFile plain = open_fixture("tiny-chat");
    const std::string lora = (open.folder.path() / "early-exit.safetensors").string();
    lora_of(plain, {}).write(lora);
    const ModelFile merged = merge_lora(open_fixture("tiny-chat"), lora).value();
    SafetensorsBuilder part = part_of("probe", plain);
    add_probe(part, "1.lens.greedy", 0.5F, 1.0F);
    add_probe(part, "1.head.greedy", 0.5F, 2.0F);
    part.metadata["lora"] = file_digest(lora).value();
    const Result<ProbePart> of_plain = open(part, plain);
    REQUIRE(of_plain.ok());
    REQUIRE(of_plain.value().probes.size() == 1);
    CHECK(of_plain.value().probes.front().head == ProbeHead::Trained);
    const Result<ProbePart> of_merged = open(part, merged);
    if (!of_merged) FAIL(of_merged.error().what);
    REQUIRE(of_merged.value().probes.size() == 1);
    CHECK(of_merged.value().probes.front().head == ProbeHead::Lens);
    part.metadata["lora"] = "0123456789abcdef";
    const std::string said = open.refusal(part, merged);
    CHECK(contains(said, "for the LoRA with the SHA-256 \"0123456789abcdef\""));
    CHECK(contains(said, file_digest(lora).value()));
    part.metadata.erase("lora");
    CHECK(contains(open.refusal(part, merged), fingerprint_text(merged.fingerprint())));
    SafetensorsBuilder lens = part_of("probe", plain);
    add_probe(lens, "1.lens.greedy", 0.5F, 1.0F);
    lens.metadata["lora"] = file_digest(lora).value();
    CHECK(contains(open.refusal(lens, plain), "for the target with a LoRA merged"));
    lens.metadata["paceline.target"] = fingerprint_text(merged.fingerprint());
    CHECK(open(lens, merged).value().probes.size() == 1);
    SafetensorsBuilder heads = part_of("probe", plain);
    add_probe(heads, "1.head.greedy", 0.5F, 1.0F);
    heads.metadata["lora"] = file_digest(lora).value();
    CHECK(contains(open.refusal(heads, merged), "for heads of the target without a LoRA"));
}

TEST_CASE("a part of probes that does not fit is refused with the name and the value") {
    const Opened open;
    const ModelFile target = open_fixture("tiny-chat");
    SafetensorsBuilder other = part_of("probe", target);
    other.metadata["paceline.target"] = "0123456789abcdef";
    add_probe(other, "1.lens.greedy", 0.5F, 0.0F);
    CHECK(contains(open.refusal(other, target), "0123456789abcdef"));
    SafetensorsBuilder half = part_of("probe", target);
    half.add_values("exit.1.lens.greedy.v", "F32", {64}, std::vector<float>(64));
    CHECK(contains(open.refusal(half, target), "tensor \"exit.1.lens.greedy.b\" is missing"));
    SafetensorsBuilder narrow = part_of("probe", target);
    narrow.add_values("exit.1.lens.greedy.v", "F32", {32}, std::vector<float>(32));
    narrow.add_values("exit.1.lens.greedy.b", "F32", {1}, std::vector<float>(1));
    CHECK(contains(open.refusal(narrow, target),
                   "tensor \"exit.1.lens.greedy.v\" (F32 [32]) must have the shape [64]"));
    SafetensorsBuilder nan = part_of("probe", target);
    add_probe(nan, "1.lens.greedy", 0.5F, std::numeric_limits<float>::quiet_NaN());
    CHECK(contains(open.refusal(nan, target), "tensor \"exit.1.lens.greedy.b\" holds nan at 0"));
    for (const char* at : {"3.lens.greedy", "1.tail.greedy", "1.lens.beam"}) {
        SafetensorsBuilder unknown = part_of("probe", target);
        add_probe(unknown, "1.lens.greedy", 0.5F, 0.0F);
        add_probe(unknown, at, 0.5F, 0.0F);
        CHECK(contains(open.refusal(unknown, target), "has no place in this part"));
    }
    SafetensorsBuilder empty = part_of("probe", target);
    empty.add_values("tokens", "I32", {1}, std::vector<TokenId>{1});
    CHECK(contains(open.refusal(empty, target), "has no tensor \"exit.LAYER.HEAD.MODE.v\""));
}

}  // namespace
}  // namespace paceline
