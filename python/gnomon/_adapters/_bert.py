from ._protocol import Adapter
class BertEncoderAdapter(Adapter):
    name="bert"
    def matches(self, module): return False
