"""Temporary."""
from types import SimpleNamespace
import numpy as np, scipy.linalg
class StationaryCost:
    batch_shape=()
    def __init__(self,Q,R,N=None,discount=1.0):
        self.Q=np.asarray(Q,float); self.R=np.asarray(R,float); self.N=None if N is None else np.asarray(N,float); self.discount=discount
        self.state_size=len(self.Q); self.input_size=len(self.R)
def solve(system,cost,check=True):
    g=np.sqrt(cost.discount); A,B=g*system.A,g*system.B
    N=np.zeros(B.shape) if cost.N is None else cost.N
    P=scipy.linalg.solve_discrete_are(A,B,cost.Q,cost.R,s=N)
    K=-np.linalg.solve(cost.R+B.T@P@B,B.T@P@A+N.T)
    return SimpleNamespace(policy=SimpleNamespace(gain=K),value_matrix=P)
