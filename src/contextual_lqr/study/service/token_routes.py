"""Tokens over HTTP, for administrators."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter()
