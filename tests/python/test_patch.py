"""test_patch.py: kiln.patch() on tiny models of transformers with random weights, and kiln.nn."""
import copy
import gc
import importlib.util
import io
import os
import unittest

from support import kiln

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
try:
    import torch
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None

with_gradients = unittest.skipUnless(importlib.util.find_spec("kiln.torch"),
                                     "this package has no kiln.torch: nothing is recorded")
SIZES = dict(vocab_size=61, hidden_size=48, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=6, max_position_embeddings=32)
TOKENS = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 0, 0]]
MASK = [[1] * 7, [1] * 5 + [0] * 2]


def llama(name="Llama", **more):
    more = dict(SIZES, num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0, **more)
    config = getattr(transformers, name + "Config")(attn_implementation="eager", **more)
    return getattr(transformers, name + "ForCausalLM")(config)


def bert(**more):
    return transformers.BertForMaskedLM(
        transformers.BertConfig(attn_implementation="eager", **SIZES, **more))


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(
        hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
        image_size=20, patch_size=5, num_labels=5, attn_implementation="eager"))


def text_of(model):
    tokens, mask = torch.tensor(TOKENS), torch.tensor(MASK)
    return dict(input_ids=tokens, attention_mask=mask,
                labels=torch.where(mask.bool(), tokens, -100), output_attentions=True)


def picture_of(model):
    torch.manual_seed(5)
    return dict(pixel_values=torch.randn(2, 3, 20, 20, dtype=model.dtype),
                labels=torch.tensor([1, 4]), output_attentions=True)


def randomized(model):
    """With weights of norms that are not 1, and biases that are not 0."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@unittest.skipUnless(torch, "torch cannot be imported")
class Modules(unittest.TestCase):
    def test_are_torchs(self):
        x = torch.randn(3, 5, 24)
        for name, arguments in [("LayerNorm", ((5, 24),)), ("LayerNorm", (24, 1e-3, False)),
                                ("RMSNorm", (24,)), ("RMSNorm", (24, 1e-3, False)),
                                ("Softmax", (1,))]:
            theirs = randomized(getattr(torch.nn, name)(*arguments))
            mine = getattr(kiln.nn, name)(*arguments)
            self.assertIsInstance(mine, getattr(torch.nn, name))
            mine.load_state_dict(theirs.state_dict(), strict=True)
            self.assertEqual(str(mine), str(theirs))
            with torch.no_grad():
                torch.testing.assert_close(mine(x), theirs(x))
        with self.assertRaisesRegex(ValueError, "dim is None"):
            kiln.nn.Softmax(None)

    def test_eps_of_small_types(self):
        for dtype in [torch.float16, torch.bfloat16, torch.float64]:
            x = (torch.randn(4, 40) * 2 ** -10).to(dtype)
            theirs = torch.nn.RMSNorm(40, elementwise_affine=False)
            torch.testing.assert_close(kiln.nn.RMSNorm(40, elementwise_affine=False)(x), theirs(x))

    def test_masked_softmax(self):
        x, masked = torch.randn(2, 5, 7), torch.rand(5, 7) > 0.6
        masked[2] = True
        expected = torch.softmax((x * 0.5).masked_fill(masked, -torch.inf), -1)
        module = kiln.nn.MaskedSoftmax(scale=0.5, empty="nan")
        torch.testing.assert_close(module(x, masked), expected, equal_nan=True)
        kept = kiln.nn.MaskedSoftmax(keep=True, scale=0.5)
        torch.testing.assert_close(kept(x, ~masked), expected.nan_to_num())
        causal = torch.ones(5, 7).triu(2).bool()
        torch.testing.assert_close(kiln.nn.MaskedSoftmax("causal", diagonal=1)(x),
                                   torch.softmax(x.masked_fill(causal, -torch.inf), -1))
        added = torch.randn(2, 1, 7)
        torch.testing.assert_close(kiln.nn.MaskedSoftmax("additive", scale=2.0)(x, added),
                                   torch.softmax(x * 2 + added, -1))
        lengths = torch.tensor([[3], [7]], dtype=torch.int32)
        torch.testing.assert_close(
            kiln.nn.MaskedSoftmax("lengths")(x, lengths.expand(2, 5)),
            torch.softmax(x.masked_fill(torch.arange(7) >= lengths[..., None], -torch.inf), -1))

    def test_giou_loss(self):
        low, side = torch.rand(2, 3, 9, 2, dtype=torch.float64), torch.rand(2, 3, 9, 2) + 0.1
        pred, target = torch.cat([low, low + side], -1)
        target[1, 4:] = 0
        p, t = pred.unbind(-1), target.unbind(-1)
        wide = [torch.minimum(p[k + 2], t[k + 2]) - torch.maximum(p[k], t[k]) for k in (0, 1)]
        inside = wide[0].clamp(min=0) * wide[1].clamp(min=0)
        union = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (p, t)) - inside
        around = [torch.maximum(p[k + 2], t[k + 2]) - torch.minimum(p[k], t[k]) for k in (0, 1)]
        around = around[0] * around[1]
        expected = (inside / union - (around - union) / around)[t[3] != 0].mean()
        torch.testing.assert_close(kiln.nn.GIoULoss()(pred, target), expected)


@unittest.skipUnless(torch, "torch cannot be imported")
class AnyModel(unittest.TestCase):
    def model(self):
        return randomized(torch.nn.Sequential(
            torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.RMSNorm(16),
            torch.nn.Softmax(-1), torch.nn.Softmax(None)))

    def test_replaced_and_undone(self):
        model, x = self.model(), torch.randn(3, 16)
        classes, parameters = [type(m) for m in model], list(model.parameters())
        seen = []
        model[0].register_forward_hook(lambda *unused: seen.append(1))
        with torch.no_grad():
            expected = model(x)
            replaced = kiln.patch(model)
            self.assertEqual(replaced, {"0": "layer_norm", "2": "rms_norm", "3": "softmax"})
            self.assertEqual(replaced.left, {"4": "its dim is None"})
            self.assertEqual(str(replaced), "layer_norm in LayerNorm: 1\nrms_norm in RMSNorm: 1\n"
                             "softmax in Softmax: 1\nleft 1, of which 4: its dim is None")
            torch.testing.assert_close(model(x), expected)
        self.assertEqual(len(seen), 2)
        self.assertIs(model.get_parameter("0.weight"), parameters[0])
        self.assertIsInstance(model[0], torch.nn.LayerNorm)
        self.assertEqual(kiln.patch(model), {})
        self.assertEqual(kiln.unpatch(model), ["0", "2", "3"])
        self.assertEqual([type(m) for m in model], classes)
        self.assertTrue(all(a is b for a, b in zip(model.parameters(), parameters)))
        self.assertEqual(kiln.unpatch(model), [])

    def test_copies_and_pickles(self):
        model, x = self.model(), torch.randn(3, 16)
        kiln.patch(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in [copy.deepcopy(model), torch.load(file, weights_only=False)]:
            self.assertIsNot(other[0].weight, model[0].weight)
            self.assertEqual([type(m) for m in other], [type(m) for m in model])
            with torch.no_grad():
                torch.testing.assert_close(other(x), model(x))
            self.assertEqual(len(kiln.unpatch(other)), 3)
        self.assertEqual(len(kiln.unpatch(model)), 3)

    def test_other_devices(self):
        model = self.model()
        kiln.patch(model)
        self.assertEqual(model.to("meta")(torch.empty(3, 16, device="meta")).shape, (3, 16))

    def test_another_rms_norm(self):
        class OnesRMSNorm(torch.nn.Module):  # as Gemma's
            def __init__(self):
                super().__init__()
                self.weight, self.eps = torch.nn.Parameter(torch.zeros(16)), 1e-6

            def forward(self, x):
                rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
                return x * rstd * (1 + self.weight)

        replaced = kiln.patch(torch.nn.Sequential(OnesRMSNorm()))
        self.assertEqual(replaced, {})
        self.assertRegex(replaced.left["0"], "OnesRMSNorm does not compute weight")


@unittest.skipUnless(torch and transformers, "no transformers: sh scripts/setup.sh --torch")
class Models(unittest.TestCase):
    def check(self, model, inputs_of, count, tolerance=None):
        """The same outputs, attentions and losses patched and not; count modules are replaced."""
        randomized(model)
        inputs = inputs_of(model)
        classes = [type(module) for module in model.modules()]
        place = __import__(type(model).__module__, fromlist=["*"])
        eager = place.eager_attention_forward
        with torch.no_grad():
            before = model(**inputs)
            replaced = kiln.patch(model)
            self.assertEqual(len(replaced), count, str(replaced))
            self.assertEqual(replaced.left, {})
            after = model(**inputs)
            named = {} if tolerance is None else dict(rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(after.loss, before.loss, **named)
            torch.testing.assert_close(after.logits, before.logits, **named)
            self.assertEqual(len(after.attentions), 2)
            for mine, theirs in zip(after.attentions, before.attentions):
                torch.testing.assert_close(mine, theirs, **named)
            self.assertEqual(len(kiln.unpatch(model)), count)
            self.assertEqual([type(module) for module in model.modules()], classes)
            self.assertIs(place.eager_attention_forward, eager)
            self.assertTrue(torch.equal(model(**inputs).logits, before.logits))

    def gradients(self, model, inputs_of):
        """The gradients of all parameters agree, of a training step with dropout, too."""
        randomized(model).train()
        inputs = inputs_of(model)

        def step():
            torch.manual_seed(2)
            model.zero_grad()
            model(**inputs).loss.backward()
            return {name: parameter.grad.clone() for name, parameter in model.named_parameters()
                    if parameter.grad is not None}

        before = step()
        self.assertGreater(len(before), 10)
        kiln.patch(model)
        torch.testing.assert_close(step(), before, rtol=1e-4, atol=1e-6)

    @with_gradients
    def test_gradients(self):
        self.gradients(llama(attention_dropout=0.1), text_of)
        self.gradients(llama("Qwen3", head_dim=16), text_of)
        self.gradients(bert(), text_of)
        self.gradients(vit(), picture_of)

    @with_gradients
    def test_compiled(self):
        model = randomized(llama())
        inputs = dict(text_of(model), output_attentions=False, use_cache=False)
        expected = model(**inputs).loss
        kiln.patch(model)
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        loss = compiled(**inputs).loss
        torch.testing.assert_close(loss, expected)
        loss.backward()
        mine = model.model.norm.weight.grad.clone()
        model.zero_grad()
        kiln.unpatch(model)
        model(**inputs).loss.backward()
        torch.testing.assert_close(mine, model.model.norm.weight.grad, rtol=1e-4, atol=1e-6)

    def test_llama(self):
        self.check(llama(), text_of, 5 + 2)
        self.check(llama(rms_norm_eps=1e-2).bfloat16(), text_of, 5 + 2, 3e-2)

    def test_qwen(self):
        self.check(llama("Qwen2"), text_of, 5 + 2)
        self.check(llama("Qwen3", head_dim=16), text_of, 5 + 4 + 2)

    def test_bert(self):
        self.check(bert(), text_of, 6 + 2)

    def test_vit(self):
        self.check(vit(), picture_of, 5 + 2)

    def test_generation(self):
        model = randomized(llama())
        tokens = torch.tensor(TOKENS)[:1]
        named = dict(max_new_tokens=6, do_sample=False, pad_token_id=0)
        expected = model.generate(tokens, **named)
        kiln.patch(model)
        self.assertTrue(torch.equal(model.generate(tokens, **named), expected))

    def test_norm_of_two_types(self):
        norm = randomized(llama().model.norm)
        model = torch.nn.Sequential(norm)
        for x in [torch.randn(3, 48), torch.randn(3, 48).bfloat16(), torch.randn(3, 48).half()]:
            with torch.no_grad():
                expected = norm(x)
                kiln.patch(model)
                got = norm(x)
            self.assertEqual(got.dtype, torch.float32)
            torch.testing.assert_close(got, expected, rtol=1e-2, atol=1e-2)
            kiln.unpatch(model)

    def test_what_is_not_reached(self):
        model = llama()
        model.set_attn_implementation("sdpa")
        replaced = kiln.patch(model)
        self.assertEqual(set(replaced.values()), {"rms_norm"})
        self.assertRegex(str(replaced), "left 2, of which model.layers.0.self_attn: attention is "
                                        "'sdpa'; Kiln reaches 'eager'")
        other = llama("Qwen3Next", linear_num_value_heads=4, linear_num_key_heads=2, num_experts=2,
                      layer_types=["full_attention"] * 2)
        self.assertEqual(kiln.patch(other), {})

    def test_two_models_of_one_class(self):
        from transformers.models.llama import modeling_llama as place
        eager = place.eager_attention_forward
        first, second = llama(), llama()
        kiln.patch(first)
        kiln.patch(second)
        third = copy.deepcopy(second)
        for model in [first, second]:
            kiln.unpatch(model)
            self.assertIsNot(place.eager_attention_forward, eager)
        del third
        gc.collect()
        self.assertIs(place.eager_attention_forward, eager)
