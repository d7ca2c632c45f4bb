from ._protocol import Adapter
class GPT2ModelAdapter(Adapter):
    name="gpt2"
    def matches(self, module): return False
